"""What an agent did, as other tools have stored it: their files as steps, and results for them."""

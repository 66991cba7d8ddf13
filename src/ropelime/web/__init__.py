"""The local web page and its JSON API; needs the extra ``web``, and no other part imports it."""

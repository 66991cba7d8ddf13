"""A built-in retrieval example: five chunks, a question that needs two of them, and its answer."""

CONTEXT = (
    "The Harbour Lantern is a lighthouse on the east coast of Orrin Island. It was finished in 1874 "
    "and stands 31 metres tall. Its lamp was switched from oil to electricity in 1926.",
    "Marta Velling was an engineer born in the town of Kessel. She designed the Harbour Lantern and "
    "two railway bridges. Velling taught at the Kessel Institute until 1889.",
    "Orrin Island is known for its seabirds. About 40,000 puffins nest on its cliffs each spring. "
    "Ferries run to the island twice a day.",
    "Kessel is a market town on the river Dray. The town is famous for its blue pottery. A fair is "
    "held there every September.",
    "The river Dray rises in the Sorrel Hills. It is 212 kilometres long. Salmon returned to it in "
    "2004.",
)
QUESTION = "What is the home town of the engineer who designed the Harbour Lantern famous for?"
ANSWER = "The town of Kessel is famous for its blue pottery."

"""The same requests to a stock controller and to one of ours: `nodes` starts both, `requests` makes random requests,
`comparison` finds what differs in answers and in what the logs hold in the end.
"""

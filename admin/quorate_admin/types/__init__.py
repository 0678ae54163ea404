"""Arguments and results of operations: frozen data with Kafka's names, one module per topic.

Operations import these modules when they are called: defining all of the classes takes tens of milliseconds, which
would delay the start of every command.
"""

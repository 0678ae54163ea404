"""What is asked of a cluster and what it answers: frozen data in Kafka's words, one module per concern.

Operations import these modules when they are called. Defining all classes takes tens of milliseconds, which a
command that needs a few of them would wait for.
"""

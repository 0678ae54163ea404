"""Kafka's numbers as Kafka's names."""

from pyspark.sql import Column
from pyspark.sql import functions as f
from quorate_protocol.kafka.enums import KafkaEnum


def name_of(kind: type[KafkaEnum], number: Column) -> Column:
    """The name of the member; of a number that has none, the number."""
    names = f.create_map(*(f.lit(part) for one in kind for part in (int(one), one.name)))
    return f.coalesce(f.try_element_at(names, number), number.cast("string"))

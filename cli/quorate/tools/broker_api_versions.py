"""`quorate broker-api-versions`: the APIs of each broker, as kafka-broker-api-versions lists them."""

import typer

from quorate.console import ToolCommand, examples, tool_app, tool_options

EXAMPLES = examples(
    "quorate broker-api-versions -b localhost:9092",
    "quorate broker-api-versions -C localhost:9093 -o json",
)

app = tool_app()


@app.command(cls=ToolCommand, epilog=EXAMPLES)
def broker_api_versions(context: typer.Context) -> None:
    """List the APIs of each broker with their versions, and the version that this client uses.

    With --bootstrap-controller, which Kafka's tool does not have, it lists those of each controller.
    """
    from quorate_protocol.kafka.apis import ListenerType

    from quorate.console.api_versions import list_api_versions

    to_controllers = tool_options(context).bootstrap_controller is not None
    list_api_versions(context, ListenerType.CONTROLLER if to_controllers else ListenerType.BROKER)

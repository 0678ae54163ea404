"""`quorate metadata-shell`: a cluster's metadata as a tree of directories and files.

    sources.py    --snapshot, --directory: files to an image          reads files
    tree/         image to nodes, lazily: what Kafka's shell shows     pure
    paths.py      paths and globs                                      pure
    shell_builtins.py cat, cd, find, ls, tree ... over the tree            pure
    parsing.py    words of a line to a command                         pure
    completing.py what may follow in a line                            pure
    structured.py the same results for programs                        pure
    interactive.py prompt, history, tab completion                     terminal

The nodes, their names, order and texts are those of org.apache.kafka.image.node and of Kafka's shell.
"""

from quorate.tools.metadata_shell.command import app

__all__ = ("app",)

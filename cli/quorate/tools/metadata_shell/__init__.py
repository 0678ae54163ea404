"""`quorate metadata-shell`: a cluster's metadata as a tree of directories and files.

    command.py         options; where the metadata comes from               files or a cluster
    sources.py         --snapshot, --directory: files to an image           reads files
    tree.py            image to nodes, lazily: what Kafka's shell shows     pure
    nodes.py           directories, files; differences of two trees         pure
    paths.py           paths and globs                                      pure
    shell_builtins.py  cat, cd, find, ls, tree ... over the tree            pure
    calls.py           a line to the command that it calls; completions; results as JSON   pure
    interactive.py     prompt, history, tab completion                      terminal

Nodes, names, order and texts are those of org.apache.kafka.image.node and of Kafka's shell.
"""

"""Ships a metadata log's closed segments and checkpoints to the source of a lake.

    HISTORY/<cluster id>/<node id>/meta.properties
                                  /__cluster_metadata-0/%020d.log, %020d-%010d.checkpoint
                                  /superseded/…                  files of a log before it was truncated

It runs beside a controller of Quorate or Java: it locks no file and changes no file at the source. A file is written
under a temporary name first, and shipped files are never deleted.
"""

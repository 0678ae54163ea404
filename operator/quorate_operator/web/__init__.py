"""The status page: pure views of what planning knows, and a small server for them."""

"""The report: one HTML file with the figures that a cluster's history gives."""

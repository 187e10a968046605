"""A report as one HTML file, with charts that plotly draws in the browser."""

"""The case ``drivers``: each driver over a broker, compared with its client library that sends raw frames."""

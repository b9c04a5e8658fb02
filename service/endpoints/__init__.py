"""One module an endpoint, each with its schemas, its handler and its `router`."""

"""What a gateway knows of its workers: it subscribes to sidecars and asks bare engines now and then."""

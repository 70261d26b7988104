"""The plugins that come with Tailrace, one file each."""

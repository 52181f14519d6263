"""How long operations take on a device: a roofline, from published rates or from those measured here."""

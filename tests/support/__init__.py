"""What tests share: fakes that implement real ports, and the report of served rules."""

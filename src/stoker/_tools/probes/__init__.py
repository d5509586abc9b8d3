"""What several tools measure and compare with."""

"""What becomes of a step's update before it counts."""

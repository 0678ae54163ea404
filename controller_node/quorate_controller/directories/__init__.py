"""Work on the directories of a controller that is not running: formatting, and making it the only voter."""

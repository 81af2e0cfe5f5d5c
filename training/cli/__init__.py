"""The commands of `scalebook`: each reads its arguments, has the work done, and says what came of it."""

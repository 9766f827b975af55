-- Ends a change, be it undone or not.
RELEASE job

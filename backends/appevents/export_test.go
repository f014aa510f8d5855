package appevents

// Remembered is of how many Applications the line knows what has passed.
func (l *Line) Remembered() int { return len(l.of) }

package link

import (
	"slices"
	"time"
)

// peaks remembers how large a collection was of late.
type peaks []peak

type peak struct {
	at   time.Time
	size int
	came int // since then, and not seen to be deleted
}

// highest takes the size of now and returns the largest within absenceWindow.
func (p *peaks) highest(now time.Time, size int) int {
	*p = slices.DeleteFunc(*p, func(old peak) bool { return old.size <= size || now.Sub(old.at) > absenceWindow })
	// What is left is larger and older: the first is the largest.
	*p = append(*p, peak{at: now, size: size})
	return (*p)[0].size
}

// tooMany is the rule of 10 and 20 %: of size entries only so many would stay.
func tooMany(size, stay int) bool {
	lost := size - stay
	return lost > fewAbsences && lost*absenceDivisor > size
}

// addNew records that the sink has come to hold an entry.
func (p peaks) addNew() {
	for i := range p {
		p[i].came++
	}
}

// removeSeen takes one out that was seen to be deleted: first of all those that came later,
// since by the number alone it may be one of them.
func (p peaks) removeSeen() {
	for i := range p {
		if p[i].came > 0 {
			p[i].came--
		} else {
			p[i].size = max(p[i].size-1, 0)
		}
	}
}

package budget

import "slices"

// Class says what goes first of what one peer has us write.
type Class uint8

const (
	// First are ends of operations, deletions, refusals and answers to a refresh: people
	// and controllers wait for them.
	First Class = iota
	// Other is every other change.
	Other
	// Last is what moves the time of a reconciliation and nothing else.
	Last

	classes = 3
)

// Line holds the keys of what is to be written, in the order in which it may go: by class,
// and within one by arrival. A key is in it once. The zero value is empty. It is not safe
// for concurrent use.
type Line[K comparable] struct {
	keys [classes][]K
	in   map[K]Class
}

// Add puts a key in the line. One that is there keeps its place, unless its new class
// goes before.
func (l *Line[K]) Add(key K, class Class) {
	if before, there := l.in[key]; there && before <= class {
		return
	}
	if l.in == nil {
		l.in = map[K]Class{}
	}
	l.in[key] = class // where it stands in another class it is passed over
	if len(l.keys[class]) >= 2*len(l.in)+maxSpare {
		l.tidy(key, class)
	}
	l.keys[class] = append(l.keys[class], key)
}

// maxSpare is how many places a class may have, beside two for each key, that are passed
// over: of keys that were removed, or that came back after that.
const maxSpare = 64

// tidy drops the places of a class that are passed over, and those of the key that comes last
// in it.
func (l *Line[K]) tidy(last K, class Class) {
	there := map[K]bool{last: true}
	l.keys[class] = slices.DeleteFunc(l.keys[class], func(key K) bool {
		in, is := l.in[key]
		passed := !is || in != class || there[key]
		there[key] = true
		return passed
	})
}

// Next returns the key that goes first, and leaves it in the line.
func (l *Line[K]) Next() (key K, class Class, ok bool) {
	for c := range l.keys {
		for len(l.keys[c]) > 0 {
			key := l.keys[c][0]
			if class, there := l.in[key]; there && class == Class(c) {
				return key, class, true
			}
			l.keys[c] = l.keys[c][1:]
		}
	}
	return key, 0, false
}

// Last returns the key that goes last, if its class is not before least, and leaves it in
// the line.
func (l *Line[K]) Last(least Class) (key K, ok bool) {
	for c := classes - 1; c >= int(least); c-- {
		for len(l.keys[c]) > 0 {
			end := len(l.keys[c]) - 1
			key := l.keys[c][end]
			if class, there := l.in[key]; there && class == Class(c) {
				return key, true
			}
			l.keys[c] = l.keys[c][:end]
		}
	}
	return key, false
}

// Remove takes a key out of the line.
func (l *Line[K]) Remove(key K) {
	delete(l.in, key)
	if len(l.in) == 0 {
		*l = Line[K]{} // gives back the memory of a burst
	}
}

// Len is how many there are.
func (l *Line[K]) Len() int { return len(l.in) }

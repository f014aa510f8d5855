package sim

// span are the first and the last line of a log at which something was so.
type span struct{ first, last int }

// shows notes that the spoke shows a status.
func (v *view) shows(i int, status string) {
	s, before := v.statuses[status]
	if !before {
		s.first = i
	}
	s.last = i
	v.statuses[status] = s
}

// tells is I3: the hub shows what the spoke showed, and does not go back to what was there
// before.
func (c *checker) tells(v *view, e Entry, before, after *object) {
	of := func(o *object) string { return str(o.child("status", "sync"), "revision") }
	status := of(after)
	if status == "" || before != nil && of(before) == status {
		return
	}
	now, known := v.statuses[e.Key.Name+" "+status]
	switch {
	case !known:
		c.breaks("I3", v, "the hub shows a status that the spoke never had: %s", e)
	case before == nil || c.late || c.restored != 0 || v.restored:
	default:
		if was, known := v.statuses[e.Key.Name+" "+of(before)]; known && now.last < was.first {
			c.breaks("I3", v, "the hub goes back to a status that the spoke had before %s: %s", of(before), e)
		}
	}
}

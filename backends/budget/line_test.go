package budget

import "testing"

// TestLineForgetsWhoLeaves: a peer sends again and again what is given back to it, while
// something else waits.
func TestLineForgetsWhoLeaves(t *testing.T) {
	var l Line[string]
	l.Add("waits", Other)
	for range 10_000 {
		l.Add("a", Other)
		l.Add("b", Other)
		for range 2 {
			if key, ok := l.Last(Other); !ok || key == "waits" {
				t.Fatalf("Last() = %q, %t", key, ok)
			} else {
				l.Remove(key)
			}
		}
	}
	if places := len(l.keys[Other]); places > 2*3+maxSpare {
		t.Errorf("a line of %d has %d places", l.Len(), places)
	}
	l.Add("a", Other)
	l.Add("last", Last)
	var order []string
	for {
		key, _, ok := l.Next()
		if !ok {
			break
		}
		order = append(order, key)
		l.Remove(key)
	}
	if len(order) != 3 || order[0] != "waits" || order[1] != "a" || order[2] != "last" {
		t.Errorf("the order is %v", order)
	}
}

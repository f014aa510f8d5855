package strangers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Max is how many IDs are kept: those that came last.
const Max = 100

// Stranger is one SPIFFE ID.
type Stranger struct {
	ID spiffeid.ID `json:"id"`
	// Times is how often a connection was refused to it.
	Times int64 `json:"times"`
	// First and Last are when that was.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// List is strangers, each once. Those of Parse and merge are in order, the newest first.
type List []Stranger

// merge returns what both lists have, the newest first.
func (l List) merge(other List) List {
	byID := map[spiffeid.ID]Stranger{}
	for _, s := range slices.Concat(l, other) {
		if before, known := byID[s.ID]; known {
			s.Times += before.Times
			if before.First.Before(s.First) {
				s.First = before.First
			}
			if before.Last.After(s.Last) {
				s.Last = before.Last
			}
		}
		byID[s.ID] = s
	}
	out := make(List, 0, len(byID))
	for _, s := range byID {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Stranger) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	return out
}

// newest returns the first Max of a list that is in order, and how many are left out.
func (l List) newest() (kept List, dropped int) {
	kept = l[:min(len(l), Max)]
	return kept, len(l) - len(kept)
}

// Without returns the list without those that are known.
func (l List) Without(known func(spiffeid.ID) bool) List {
	return slices.DeleteFunc(slices.Clone(l), func(s Stranger) bool { return known(s.ID) })
}

// dataKey is where the ConfigMap has the list.
const dataKey = "ids.json"

// Parse reads the data of the ConfigMap. Without the key there is no one.
func Parse(data map[string]string) (List, error) {
	text, found := data[dataKey]
	if !found {
		return nil, nil
	}
	var l List
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, fmt.Errorf("%s of ConfigMap %s: %w", dataKey, Name, err)
	}
	kept, _ := List{}.merge(l).newest()
	return kept, nil
}

// data is the inverse of Parse.
func (l List) data() (map[string]string, error) {
	text, err := json.MarshalIndent(l, "", " ")
	return map[string]string{dataKey: string(text)}, err
}

package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// A mirror that is released while its spoke is connected stays as it is, whatever the spoke
// does, and no one writes it; once the annotation is gone, it shows the spoke again.
func TestReleaseOnALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{mode: stream.Autonomous})
		r.connect()
		r.create(r.spoke, "a", nil, spec("one"))
		pass(time.Second)
		annotate := func(value any) {
			r.update(r.hub, "a", func(app m) {
				annotations := app["metadata"].(m)["annotations"].(m)
				if annotations[record.ReleasedKey] = value; value == nil {
					delete(annotations, record.ReleasedKey)
				}
			})
		}
		annotate("true")
		before := r.revision(r.hub, "a")
		r.update(r.spoke, "a", func(app m) { app["spec"].(m)["source"] = m{"path": "two"} })
		r.update(r.spoke, "a", func(app m) { app["status"] = m{"sync": m{"status": "Synced"}} })
		pass(time.Hour)
		if got := at(r.get(r.hub, "a"), "spec", "source", "path"); got != "one" || r.revision(r.hub, "a") != before {
			t.Errorf("what was released is written: path %v, revision %v, was %v", got, r.revision(r.hub, "a"), before)
		}
		told := false
		for _, parked := range r.stats(r.hub).Parked {
			told = told || parked.Kind == stream.RefusalNotOwned && strings.Contains(parked.Message, record.ReleasedKey)
		}
		if !told {
			t.Errorf("nobody is told: %+v", r.stats(r.hub).Parked)
		}
		annotate(nil)
		pass(time.Hour)
		if got := at(r.get(r.hub, "a"), "spec", "source", "path"); got != "two" {
			t.Errorf("the mirror shows path %v", got)
		}
		annotate("true")
		r.remove(r.spoke, "a")
		pass(time.Hour)
		if r.get(r.hub, "a") == nil {
			t.Error("what was released goes with the spoke's")
		}
	})
}

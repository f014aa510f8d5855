package mirror_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// While deletions are held, a spoke has copies of Applications that the hub does not
// have, or may not show a status on. It does not go on telling their statuses, also when
// these change, until there is a place for them.
func TestHeldDeletionsAreQuiet(t *testing.T) {
	for name, c := range map[string]struct {
		lose, find func(*pair, string)
	}{
		"gone, and made again": {
			lose: func(r *pair, name string) { r.remove(r.hub, name) },
			find: func(r *pair, name string) { r.create(r.hub, name, nil, spec("v1")) },
		},
		"without a destination, and with one": {
			lose: func(r *pair, name string) {
				r.update(r.hub, name, func(o m) { o["spec"].(m)["destination"] = m{"name": "elsewhere"} })
			},
			find: func(r *pair, name string) { r.update(r.hub, name, func(o m) { o["spec"] = spec("v1")["spec"] }) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const apps = 20
				var statuses, bytes atomic.Int64
				h := &hubHistory{}
				r := newPair(t, options{configure: h.configure, statusDelay: -1, watch: func(msg stream.Message) {
					batch, _ := msg.(stream.Batch)
					for _, e := range batch.Events {
						if e.Key.Collection == stream.Statuses {
							statuses.Add(1)
							bytes.Add(int64(len(e.Data)))
						}
					}
				}})
				app := func(i int) string { return fmt.Sprint("app-", i) }
				for i := range apps {
					r.create(r.hub, app(i), nil, spec("v1"))
				}
				r.connect()
				pass(time.Second)
				status := func(i int, health string) {
					r.update(r.spoke, app(i), func(o m) { o["status"] = m{"health": m{"status": health}} })
				}
				for i := range apps {
					status(i, "Healthy")
				}
				pass(time.Second)
				h.set("the hub was restored", nil)
				for i := range apps {
					c.lose(r, app(i))
				}
				pass(time.Minute)
				statuses.Store(0)
				for i := range apps {
					status(i, "Progressing")
				}
				pass(time.Minute)
				// Each entry may have been tried once: its pause is 80 s by then.
				if got := statuses.Load(); got > apps {
					t.Errorf("in a minute %d statuses (%d bytes) of %d Applications were told that the hub does not have", got, bytes.Load(), apps)
				}
				for i := range apps {
					c.find(r, app(i))
				}
				pass(20 * time.Second)
				for i := range apps {
					if got := at(r.get(r.hub, app(i)), "status", "health", "status"); got != "Progressing" {
						t.Errorf("%s is there again and shows %v", app(i), got)
					}
				}
			})
		})
	}
}

package sim

import (
	"fmt"
	"time"
)

// fightTime is how soon someone changes back what he sees changed, at most.
const fightTime = 2 * time.Second

// fight is someone on the side of the copies, as an operator that wants another revision:
// whenever he sees the copy changed he changes it back, for so long, or for ever.
func (w *Fleet) fight(s *spoke, c Command) {
	ctx, side := w.ctx, s.other()
	w.journal.add(Entry{Place: s.Name, Note: Fights, Side: side, Key: s.key(side, c.App), For: c.For})
	began, actor := time.Now(), s.Name+" fights for "+c.App
	w.wait.Go(func() {
		for pause(ctx, w.chance.upTo(actor, fightTime)) && (c.For == 0 || time.Since(began) < c.For) {
			w.change(s, c, side, People, func(app application) bool {
				source := app.child("spec", "source")
				wants := fmt.Sprint("fight/", c.N)
				if app.deleting() || app.marks().source == "" || source == nil || source["targetRevision"] == wants {
					return false
				}
				source["targetRevision"] = wants
				return true
			})
		}
	})
}

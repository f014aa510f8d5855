package cascades

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/identity"
)

// counting is a tally in virtual time, and what becomes of the Applications of agents.
type counting struct {
	t     *testing.T
	tally tally
	now   time.Time
	ahead time.Duration        // of the API server's clock before that of the process
	apps  map[string][]Counted // of each agent, those that are there
	made  int
	// accepted is how many of those that were asked to go the tally took for accepted.
	accepted int
}

func newCounting(t *testing.T) *counting {
	return &counting{t: t, tally: newTally(), now: time.Unix(1_700_000_000, 0), apps: map[string][]Counted{}}
}

func (c *counting) name(agent string) identity.AgentName {
	c.t.Helper()
	name, err := identity.ParseAgentName(agent)
	if err != nil {
		c.t.Fatal(err)
	}
	return name
}

// agent registers an agent with so many Applications that were made an hour ago.
func (c *counting) agent(agent string, limit, apps int) {
	c.tally.limit(c.name(agent), limit, false, State{})
	c.tally.filled(c.name(agent), c.now)
	c.make(agent, apps, time.Hour)
}

// make makes Applications that are that old.
func (c *counting) make(agent string, apps int, age time.Duration) {
	for range apps {
		c.made++
		one := Counted{UID: fmt.Sprint(c.made), Created: c.now.Add(c.ahead - age)}
		c.apps[agent] = append(c.apps[agent], one)
		c.tally.came(c.name(agent), one.UID, one.Created, c.now)
	}
}

// ask has the first so many that are not asked yet go with their workloads.
func (c *counting) ask(agent string, apps int) {
	for i := range c.apps[agent] {
		one := &c.apps[agent][i]
		if apps == 0 || !one.Asked.IsZero() {
			continue
		}
		apps--
		one.Asked = c.now.Add(c.ahead)
		c.tally.agents[c.name(agent)].remove(one.UID)
		if c.tally.ask(c.name(agent), one.UID, one.Created, one.Asked, c.now) {
			c.accepted++
		}
	}
}

// gone has the first so many go, those first that were asked.
func (c *counting) gone(agent string, apps int) {
	for _, one := range c.apps[agent][:apps] {
		c.tally.went(c.name(agent), one.UID, false, c.now)
	}
	c.apps[agent] = c.apps[agent][apps:]
}

// restart is another process, which counts what there is and what was kept.
func (c *counting) restart() {
	before := c.tally
	c.tally = newTally()
	for name, a := range before.agents {
		kept, _ := before.state(name)
		c.tally.limit(name, a.limit, a.terminating, kept)
	}
	for agent := range c.apps {
		c.look(agent)
	}
}

// look notes all that an agent has.
func (c *counting) look(agent string) {
	name := c.name(agent)
	for _, one := range c.apps[agent] {
		if one.Asked.IsZero() {
			c.tally.came(name, one.UID, one.Created, c.now)
		} else if c.tally.ask(name, one.UID, one.Created, one.Asked, c.now) {
			c.accepted++
		}
	}
	c.tally.filled(name, c.now)
}

// held are the agents whose ends are held, in the order given, and waiting those that
// are counted.
func (c *counting) held(agents ...string) (held []string) {
	for _, agent := range agents {
		if gate, _ := c.tally.admission(c.name(agent), c.now); gate.Held != "" {
			held = append(held, agent)
		}
	}
	return held
}

func (c *counting) waiting(agent string) bool {
	gate, again := c.tally.admission(c.name(agent), c.now)
	if gate.Counting && !again.After(c.now) && c.tally.filling == 0 {
		c.t.Errorf("%s waits, and nobody is told when it is to be asked again", agent)
	}
	return gate.Counting
}

// What is too much, of which agents it is held.
func TestTallyHolds(t *testing.T) {
	for name, test := range map[string]struct {
		story func(c *counting)
		want  []string
	}{
		"12 of 20":          {func(c *counting) { c.agent("a", 10, 20); c.ask("a", 12) }, []string{"a"}},
		"all 20":            {func(c *counting) { c.agent("a", 10, 20); c.ask("a", 20) }, []string{"a"}},
		"11 of 100":         {func(c *counting) { c.agent("a", 10, 100); c.ask("a", 11) }, nil},
		"11 of 22, a half":  {func(c *counting) { c.agent("a", 10, 22); c.ask("a", 11) }, nil},
		"11 of 21":          {func(c *counting) { c.agent("a", 10, 21); c.ask("a", 11) }, []string{"a"}},
		"10 of 10":          {func(c *counting) { c.agent("a", 10, 10); c.ask("a", 10) }, nil},
		"4 of 5, 3 allowed": {func(c *counting) { c.agent("a", 3, 5); c.ask("a", 4) }, []string{"a"}},
		"12 of 20, 12 allowed, and another agent has more": {func(c *counting) {
			c.agent("a", 12, 20)
			c.agent("b", 10, 20)
			c.ask("a", 12)
		}, nil},
		"all, where it is switched off": {func(c *counting) { c.agent("a", 0, 100); c.ask("a", 100) }, nil},
		"the eleventh of 20, ten are gone": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ask("a", 10)
			c.gone("a", 10)
			c.now = c.now.Add(4 * time.Minute)
			c.ask("a", 1)
		}, []string{"a"}},
		"the eleventh of 20, ten went long ago": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ask("a", 10)
			c.gone("a", 10)
			c.now = c.now.Add(6 * time.Minute)
			c.ask("a", 1)
		}, nil},
		"the eleventh of 20, ten were asked long ago and are still there": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ask("a", 10)
			c.now = c.now.Add(time.Hour)
			c.ask("a", 1)
		}, []string{"a"}},
		"it stays held for as long as nobody says anything": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ask("a", 10)
			c.gone("a", 10)
			c.ask("a", 2)
			c.now = c.now.Add(time.Hour)
		}, []string{"a"}},
		"all of what was made of late": {func(c *counting) {
			c.agent("a", 10, 0)
			c.make("a", 100, 4*time.Minute)
			c.ask("a", 100)
			c.now = c.now.Add(time.Hour)
		}, nil},
		"12 of 20, and 100 were made of late": {func(c *counting) {
			c.agent("a", 10, 20)
			c.make("a", 100, time.Minute)
			c.ask("a", 12)
		}, []string{"a"}},
		"12 of 120, 100 were made before": {func(c *counting) {
			c.agent("a", 10, 20)
			c.make("a", 100, time.Minute)
			c.now = c.now.Add(5 * time.Minute)
			c.ask("a", 12)
		}, nil},
		"12 of 30, of which 8 just went without their workloads": {func(c *counting) {
			c.agent("a", 10, 30)
			c.gone("a", 8)
			c.ask("a", 12)
		}, nil},
		"12 of 22, 8 went without their workloads long ago": {func(c *counting) {
			c.agent("a", 10, 30)
			c.gone("a", 8)
			c.now = c.now.Add(6 * time.Minute)
			c.ask("a", 12)
		}, []string{"a"}},
		"two agents, each below": {func(c *counting) {
			c.agent("a", 10, 10)
			c.agent("b", 10, 10)
			c.ask("a", 8)
			c.ask("b", 8)
		}, []string{"a", "b"}},
		"two agents, together below": {func(c *counting) {
			c.agent("a", 10, 10)
			c.agent("b", 10, 100)
			c.ask("a", 8)
			c.ask("b", 8)
		}, nil},
		"three agents, of one nothing is asked": {func(c *counting) {
			c.agent("a", 10, 10)
			c.agent("b", 10, 10)
			c.agent("c", 10, 10)
			c.ask("a", 8)
			c.ask("b", 9)
		}, []string{"a", "b"}},
		"two agents, one of them switched off": {func(c *counting) {
			c.agent("a", 10, 20)
			c.agent("b", 0, 20)
			c.ask("b", 20)
			c.ask("a", 8)
		}, nil},
		"the agent goes with all that it has": {func(c *counting) {
			c.agent("a", 10, 20)
			c.agent("b", 10, 10)
			c.tally.limit(c.name("a"), 10, true, State{})
			c.ask("a", 20)
			c.ask("b", 1)
		}, nil},
		"held, and then switched off": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ask("a", 20)
			c.tally.limit(c.name("a"), 0, false, State{})
		}, nil},
		"accepted": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ask("a", 12)
			c.tally.accept(c.name("a"))
			c.ask("a", 8)
		}, nil},
		"accepted, and as many again": {func(c *counting) {
			c.agent("a", 10, 40)
			c.ask("a", 22)
			c.tally.accept(c.name("a"))
			c.ask("a", 12)
		}, []string{"a"}},
		"accepted for one of two": {func(c *counting) {
			c.agent("a", 10, 10)
			c.agent("b", 10, 10)
			c.ask("a", 8)
			c.ask("b", 8)
			c.tally.accept(c.name("a"))
		}, []string{"b"}},
		"12 of 20 that were made while the API server's clock was a day ahead": {func(c *counting) {
			c.ahead = 24 * time.Hour
			c.agent("a", 10, 20)
			c.ahead = 0
			c.now = c.now.Add(2 * time.Hour)
			c.ask("a", 12)
		}, []string{"a"}},
		"the same, and they are counted anew": {func(c *counting) {
			c.ahead = 24 * time.Hour
			c.agent("a", 10, 20)
			c.ahead = 0
			c.now = c.now.Add(2 * time.Hour)
			for i := range 12 {
				c.apps["a"][i].Asked = c.now
			}
			c.restart()
		}, []string{"a"}},
		"12 of 20, its clock is a few seconds ahead, and 100 were just made": {func(c *counting) {
			c.ahead = 3 * time.Second
			c.agent("a", 10, 20)
			c.make("a", 100, 0)
			c.ask("a", 12)
		}, []string{"a"}},
		"the eleventh of 20, ten went while its clock was a day ahead": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ahead = 24 * time.Hour
			c.ask("a", 10)
			c.gone("a", 10)
			c.ahead = 0
			c.now = c.now.Add(time.Minute)
			c.ask("a", 1)
		}, []string{"a"}},
		"the same long ago": {func(c *counting) {
			c.agent("a", 10, 20)
			c.ahead = 24 * time.Hour
			c.ask("a", 10)
			c.gone("a", 10)
			c.ahead = 0
			c.now = c.now.Add(6 * time.Minute)
			c.ask("a", 1)
		}, nil},
		"12 of 22, 8 went without their workloads while the process' own clock was a day ahead": {func(c *counting) {
			c.agent("a", 10, 30)
			c.now = c.now.Add(24 * time.Hour)
			c.gone("a", 8)
			c.now = c.now.Add(-20 * time.Hour)
			c.restart()
			c.ask("a", 12)
		}, []string{"a"}},
		"let go without their workloads": {func(c *counting) {
			c.agent("a", 10, 40)
			c.ask("a", 21)
			for _, one := range c.apps["a"][:21] {
				c.tally.went(c.name("a"), one.UID, true, c.now)
			}
			c.apps["a"] = c.apps["a"][21:]
			c.tally.idle(c.name("a"))
			c.ask("a", 9)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounting(t)
			test.story(c)
			for agent := range c.apps {
				if len(c.apps[agent]) > 0 && c.apps[agent][0].Asked.IsZero() {
					c.tally.idle(c.name(agent)) // as its link says
				}
			}
			var agents []string
			for _, agent := range []string{"a", "b", "c"} {
				if c.tally.agents[c.name(agent)] != nil {
					agents = append(agents, agent)
				}
			}
			if diff := cmp.Diff(test.want, c.held(agents...)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}

// They are counted before they are sent: from the eleventh on, until for 10 s there was
// none.
func TestTallyCounts(t *testing.T) {
	c := newCounting(t)
	c.agent("a", 10, 1000)
	c.agent("b", 3, 1000)
	c.agent("small", 10, 20)
	step := func(what string, agent string, want bool) {
		t.Helper()
		if got := c.waiting(agent); got != want {
			t.Errorf("%s: waits %t, want %t", what, got, want)
		}
	}
	c.ask("a", 10)
	step("ten", "a", false)
	c.ask("a", 1)
	step("the eleventh", "a", true)
	step("another agent", "b", false)
	c.now = c.now.Add(9 * time.Second)
	c.ask("a", 1)
	c.now = c.now.Add(9 * time.Second)
	step("9 s after the last", "a", true)
	c.now = c.now.Add(time.Second)
	step("10 s after the last", "a", false)

	c.ask("b", 3)
	step("as many as are allowed", "b", false)
	c.ask("b", 1)
	step("one more", "b", true)
	c.now = c.now.Add(10 * time.Second)

	c.ask("small", 1)
	step("one of a small agent", "small", false)
	c.ask("a", 200)
	step("once a tenth of all is asked for", "small", true)
	c.now = c.now.Add(10 * time.Second)
	step("10 s after", "small", false)
}

// Another process goes on where this one was.
func TestTallyRestarts(t *testing.T) {
	t.Run("in the middle", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 20)
		c.ask("a", 10)
		c.gone("a", 6)
		c.restart()
		if held := c.held("a"); held != nil {
			t.Fatalf("ten are held: %v", held)
		}
		c.ask("a", 2)
		if c.held("a") == nil {
			t.Error("twelve of twenty are not held after a restart")
		}
	})
	t.Run("while it was away", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 20)
		for i := range 12 {
			c.apps["a"][i].Asked = c.now
		}
		c.restart()
		if c.held("a") == nil {
			t.Error("twelve of twenty that were asked for meanwhile are not held")
		}
	})
	t.Run("held, and the others are gone", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 20)
		c.ask("a", 12)
		c.gone("a", 10)
		c.now = c.now.Add(time.Hour)
		c.restart()
		if c.held("a") == nil {
			t.Error("what was held is not after a restart")
		}
	})
	t.Run("accepted", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 40)
		c.ask("a", 24)
		c.tally.accept(c.name("a"))
		c.now = c.now.Add(time.Second)
		c.ask("a", 2)
		c.restart()
		if held := c.held("a"); held != nil || c.accepted != 24 {
			t.Errorf("after a restart %d are accepted, and %v holds", c.accepted, held)
		}
	})
	t.Run("accepted while the API server's clock was a day ahead, and more of late", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 40)
		c.ahead = 24 * time.Hour
		c.ask("a", 12)
		c.tally.accept(c.name("a"))
		c.ahead = 0
		c.now = c.now.Add(time.Hour)
		for i := range 24 {
			if c.apps["a"][i].Asked.IsZero() {
				c.apps["a"][i].Asked = c.now
			}
		}
		c.restart()
		if c.accepted != 12 {
			t.Errorf("after a restart %d are accepted, want the 12 that were", c.accepted)
		}
	})
	t.Run("accepted, and one more in the same second", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 40)
		c.ask("a", 24)
		c.tally.accept(c.name("a"))
		c.ask("a", 1)
		c.restart()
		if c.accepted != 0 {
			t.Errorf("after a restart %d are accepted, though one was not", c.accepted)
		}
	})
	t.Run("two agents, one is not counted yet", func(t *testing.T) {
		c := newCounting(t)
		c.agent("a", 10, 18)
		c.agent("b", 10, 100)
		c.ask("a", 8)
		c.ask("b", 8)
		apps := c.apps["b"]
		delete(c.apps, "b")
		c.restart()
		if !c.waiting("a") {
			t.Error("what is not counted as a whole does not wait")
		}
		c.apps["b"] = apps
		c.look("b")
		if held := c.held("a", "b"); held != nil || !c.waiting("a") {
			t.Errorf("%v is held", held)
		}
		if !c.tally.news[c.name("a")] {
			t.Error("nobody is told that all are counted")
		}
	})
}

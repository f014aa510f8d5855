package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// hubPlace is the name of the hub where an agent's names its spoke.
const hubPlace = "hub"

// Agent is one agent of a history.
type Agent struct {
	Name string
	Mode stream.Mode
	// Shared says that its Applications are in one namespace with those of others, and
	// its own by their destination. Such an agent is managed.
	Shared bool
	// Beside names the agent on whose cluster it runs; empty for one of its own.
	Beside string
}

// Trace is one history: all that is needed to run it.
type Trace struct {
	Agents []Agent
	// Clock is how far the clocks of all spokes are ahead of the hub's.
	Clock time.Duration
	// Hooks says that delete hooks come into what managed agents deploy, and go again.
	Hooks bool
	// Fields says that what people write has fields that older releases of Argo CD do not
	// know, zero values that are spelt out, and forms that Argo CD normalizes.
	Fields bool
	// ArgoCD says that the spokes' controllers write as Argo CD's does: see argo.go.
	ArgoCD bool
	// Holds says that a mass cascade waits for a person: see holds.go.
	Holds bool
	// Default says that the Argo CD of each spoke has made an AppProject default.
	Default bool
	// Seed is that of the time before the first command.
	Seed     uint64
	Commands []Command
}

// Verb says what a Command does.
type Verb string

// The verbs, with the fields of Command they use besides Wait and Seed.
const (
	Edit      Verb = "edit"      // Place App On N Cascade: create an Application, or give it another spec and label
	Remove    Verb = "remove"    // Place App On Cascade: delete one, with or without its workloads
	Recreate  Verb = "recreate"  // Place App On N: delete one without its workloads, and create it again
	Move      Verb = "move"      // Place App: on the hub, to another destination, or back
	Handover  Verb = "handover"  // Place App N: on the hub, to the next agent that shares the namespace
	Ignore    Verb = "ignore"    // Place App: set or remove ignore-sync on the owner's side
	Status    Verb = "status"    // Place App N: the controller shows something new
	Sync      Verb = "sync"      // Place App: the button in argocd-server
	Terminate Verb = "terminate" // Place App: the other button
	Refresh   Verb = "refresh"   // Place App: that one too
	Hydrate   Verb = "hydrate"   // Place App: the request of a hydration
	AutoSync  Verb = "autosync"  // Place App: the spoke's controller starts an operation by itself
	// Place N Off: on the hub, an AppProject for a managed agent is written, or deleted; one
	// with roles on the spoke of an autonomous one.
	Project Verb = "project"
	// Place App On N Off: a Secret of that project is written, or deleted.
	Repository Verb = "repository"
	// Place On N Off: an item of a ConfigMap that is for all agents is written, or taken
	// away; on a spoke, one of its own, or the hub's.
	Trust    Verb = "trust"
	Burst    Verb = "burst"    // Place On N Count: Count edits at once
	Cut      Verb = "cut"      // Place: the agent's connections break
	Renew    Verb = "renew"    // Place: another connection takes over, without a gap
	Kill     Verb = "kill"     // Place Calls After: the process dies, now or with a call to its store
	Twin     Verb = "twin"     // Place For: the process loses its role to another, and does not notice for so long
	Freeze   Verb = "freeze"   // Place For: the process does nothing for so long, between deciding and sending
	Clock    Verb = "clock"    // Place For: the clock of the process' node is so far ahead from now on
	APIClock Verb = "apiclock" // Place For: that of its API server is, and of what else runs beside it
	Failing  Verb = "failing"  // Place On/Off: calls of the process fail, conflict, or lose their reply
	Slow     Verb = "slow"     // Place For: calls take up to so long
	Pause    Verb = "pause"    // For: time passes
	Snapshot Verb = "snapshot" // Place: the etcd of the hub, or of the spoke, is backed up
	// Place Count Older: and restored, with so much added to its revision, and perhaps to an
	// older Argo CD; processes live on.
	Restore Verb = "restore"
	Rebuild Verb = "rebuild" // Place: the spoke is a new Kubernetes cluster
	Accept  Verb = "accept"  // Place: a person accepts the deletions that are held
	// Place Cascade: its Agent is deleted, with what it has on the spoke or without.
	Depart Verb = "depart"
	// What API servers keep and refuse, and what others write in them.
	Schema  Verb = "schema"  // Place Off: its Argo CD becomes older, and knows fewer fields, or newer again
	Refuse  Verb = "refuse"  // Place Off: its API server refuses some of our writes, or no more
	Doom    Verb = "doom"    // Place On Off: the namespace of the Applications is being deleted, or is made again
	Found   Verb = "found"   // Place App On N Kind Marks Says: an object is made where a copy would be
	Adopt   Verb = "adopt"   // Place App On N Kind Says: what is there says whether it may be adopted
	Fight   Verb = "fight"   // Place App On For: someone changes the copy back whenever it changes, for ever if For is zero
	Approve Verb = "approve" // Place App On: a person confirms a deletion
	Set     Verb = "set"     // Place On Says Off: a setting is switched on, or off again: see settings.go
	Share   Verb = "share"   // Off: the principal shares the AppProject default, or no more: see default.go
	Default Verb = "default" // Place N Off: the AppProject default is written there, or deleted on a spoke
	Keep    Verb = "keep"    // Place App: what is being deleted on the hub is to leave its workloads: see keep.go
)

var verbs = []Verb{
	Edit, Remove, Recreate, Move, Handover, Ignore, Status, Sync, Terminate, Refresh, Hydrate, AutoSync, Burst,
	Project, Repository, Trust, Cut, Renew, Kill, Failing, Slow, Pause, Snapshot, Restore, Rebuild, Accept, Twin, Freeze, Clock, APIClock,
	Schema, Refuse, Doom, Found, Adopt, Fight, Approve, Set, Share, Default, Keep, Depart,
}

// Command is one line of a Trace.
type Command struct {
	Verb  Verb
	Place string // an agent's name, or hub
	App   string
	// On is the side of anyone who acts. Zero means the owner's.
	On stream.Side
	// N makes content unlike any other.
	N       int
	Count   int
	Cascade bool
	// Calls is the number of a call of the process to its store from now on, at
	// which it dies; zero means at once. After says that the call takes effect.
	Calls int
	After bool
	Off   bool
	Older bool
	For   time.Duration
	// Kind is that of an object: application (empty), project or repository.
	Kind string
	// Marks says what marks an object bears: none (empty), hub (another one), or agent
	// (another one of this hub).
	Marks string
	// Says is the name of a setting, or what an object says of its adoption: always, never,
	// or nothing.
	Says string
	// Wait is the time until the next command.
	Wait time.Duration
	Seed uint64
}

// String is the line that ParseCommand reads.
func (c Command) String() string {
	words := []string{string(c.Verb)}
	for _, word := range []string{c.Place, c.App} {
		if word != "" {
			words = append(words, word)
		}
	}
	flag := func(name string, set bool) {
		if set {
			words = append(words, name)
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			words = append(words, name+"="+strconv.Itoa(n))
		}
	}
	duration := func(name string, d time.Duration) {
		if d != 0 {
			words = append(words, name+"="+d.String())
		}
	}
	if c.On != 0 {
		words = append(words, "on="+c.On.String())
	}
	number("n", c.N)
	number("count", c.Count)
	flag("cascade", c.Cascade)
	number("calls", c.Calls)
	flag("after", c.After)
	flag("off", c.Off)
	flag("older", c.Older)
	for _, word := range []struct{ name, value string }{{"kind", c.Kind}, {"marks", c.Marks}, {"says", c.Says}} {
		if word.value != "" {
			words = append(words, word.name+"="+word.value)
		}
	}
	duration("for", c.For)
	duration("wait", c.Wait)
	if c.Seed != 0 {
		words = append(words, "seed="+strconv.FormatUint(c.Seed, 16))
	}
	return strings.Join(words, " ")
}

// ParseCommand reads one line.
func ParseCommand(line string) (Command, error) {
	verb, args, err := datadriven.ParseLine(line)
	if err != nil {
		return Command{}, fmt.Errorf("command %q: %w", line, err)
	}
	c := Command{Verb: Verb(verb)}
	if !slices.Contains(verbs, c.Verb) {
		return Command{}, fmt.Errorf("command %q: no such verb", line)
	}
	for _, arg := range args {
		if err := c.set(arg); err != nil {
			return Command{}, fmt.Errorf("command %q: %s: %w", line, arg.Key, err)
		}
	}
	return c, nil
}

func (c *Command) set(arg datadriven.CmdArg) error {
	value := ""
	if len(arg.Vals) == 1 {
		value = arg.Vals[0]
	}
	var err error
	switch arg.Key {
	case "on":
		c.On, err = parseSide(value)
	case "n":
		c.N, err = strconv.Atoi(value)
	case "count":
		c.Count, err = strconv.Atoi(value)
	case "calls":
		c.Calls, err = strconv.Atoi(value)
	case "cascade":
		c.Cascade = true
	case "after":
		c.After = true
	case "off":
		c.Off = true
	case "older":
		c.Older = true
	case "kind":
		c.Kind, err = oneOf(value, kindProject, kindRepository)
	case "marks":
		c.Marks, err = oneOf(value, marksHub, marksAgent)
	case "says":
		c.Says, err = oneOf(value, append([]string{adoptAlways, adoptNever}, settingNames...)...)
	case "for":
		c.For, err = time.ParseDuration(value)
	case "wait":
		c.Wait, err = time.ParseDuration(value)
	case "seed":
		c.Seed, err = strconv.ParseUint(value, 16, 64)
	default:
		switch {
		case len(arg.Vals) > 0 || c.App != "":
			return errors.New("no such argument")
		case c.Place == "":
			c.Place = arg.Key
		default:
			c.App = arg.Key
		}
	}
	return err
}

func oneOf(value string, known ...string) (string, error) {
	if !slices.Contains(known, value) {
		return "", fmt.Errorf("%q is none of %q", value, known)
	}
	return value, nil
}

func parseSide(s string) (stream.Side, error) {
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		if side.String() == s {
			return side, nil
		}
	}
	return 0, fmt.Errorf("%q is no side", s)
}

// agentKinds are the kinds of agents, by the arguments that name them.
var agentKinds = []Agent{
	{Name: "managed", Mode: stream.Managed}, {Name: "shared", Mode: stream.Managed, Shared: true}, {Name: "autonomous", Mode: stream.Autonomous},
}

// String is the trace as a test of datadriven, less the expected result.
func (t Trace) String() string {
	var b strings.Builder
	b.WriteString("run")
	for _, kind := range agentKinds {
		var names []string
		for _, a := range t.Agents {
			if a.Mode == kind.Mode && a.Shared == kind.Shared {
				names = append(names, a.Name)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, " %s=(%s)", kind.Name, strings.Join(names, ","))
		}
	}
	for _, first := range t.Agents {
		var names []string
		for _, a := range t.Agents {
			if a.Beside == first.Name {
				names = append(names, a.Name)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, " together=(%s,%s)", first.Name, strings.Join(names, ","))
		}
	}
	if t.Clock != 0 {
		fmt.Fprintf(&b, " clock=%s", t.Clock)
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"hooks", t.Hooks}, {"fields", t.Fields}, {"argocd", t.ArgoCD}, {"holds", t.Holds}, {"default", t.Default}} {
		if flag.set {
			b.WriteString(" " + flag.name)
		}
	}
	fmt.Fprintf(&b, " seed=%x\n", t.Seed)
	for _, c := range t.Commands {
		b.WriteString(c.String() + "\n")
	}
	return b.String()
}

// ParseTrace reads a test of datadriven: the arguments of run, and its input.
func ParseTrace(args []datadriven.CmdArg, input string) (Trace, error) {
	var t Trace
	for _, arg := range args {
		switch arg.Key {
		case "managed", "shared", "autonomous":
			a := agentKinds[slices.IndexFunc(agentKinds, func(kind Agent) bool { return kind.Name == arg.Key })]
			for _, name := range arg.Vals {
				if _, err := identity.ParseAgentName(name); err != nil {
					return Trace{}, err
				}
				a.Name = name
				t.Agents = append(t.Agents, a)
			}
		case "together":
			for i, a := range t.Agents { // they are named before
				if n := slices.Index(arg.Vals, a.Name); n > 0 {
					t.Agents[i].Beside = arg.Vals[0]
				}
			}
		case "hooks":
			t.Hooks = true
		case "fields":
			t.Fields = true
		case "argocd":
			t.ArgoCD = true
		case "holds":
			t.Holds = true
		case "default":
			t.Default = true
		case "clock", "seed":
			if len(arg.Vals) != 1 {
				return Trace{}, fmt.Errorf("run: %s takes one value", arg.Key)
			}
			var err error
			if arg.Key == "clock" {
				t.Clock, err = time.ParseDuration(arg.Vals[0])
			} else {
				t.Seed, err = strconv.ParseUint(arg.Vals[0], 16, 64)
			}
			if err != nil {
				return Trace{}, fmt.Errorf("run: %s: %w", arg.Key, err)
			}
		default:
			return Trace{}, fmt.Errorf("run: no such argument: %s", arg.Key)
		}
	}
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := ParseCommand(line)
		if err != nil {
			return Trace{}, err
		}
		if !t.names(c.Place) {
			return Trace{}, fmt.Errorf("command %q: no such place", line)
		}
		t.Commands = append(t.Commands, c)
	}
	return t, nil
}

// names reports whether a place is one of the trace, or left out.
func (t Trace) names(place string) bool {
	return place == "" || place == hubPlace || slices.ContainsFunc(t.Agents, func(a Agent) bool { return a.Name == place })
}

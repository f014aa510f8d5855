package main

import "fmt"

// What the code is held to. A goal that would make the code worse somewhere has an
// exception there.
const (
	maxPackage  = 3500 // lines
	maxFields   = 20   // of a struct of state
	maxMethods  = 30   // of any type but those of the Kubernetes API
	maxFunction = 60   // lines
	maxDepth    = 4    // of a function
	manyFiles   = 10   // from so many files on, arrows are held to backShare
	backShare   = 10   // one of so many arrows may run back up
)

// goal names what is counted.
type goal string

const (
	packageLines  goal = "lines of a package"
	structFields  goal = "fields of a struct of state"
	typeMethods   goal = "methods of a type"
	functionLines goal = "lines of a function"
	functionDepth goal = "depth of a function"
	arrowsBack    goal = "arrows back up"
	tripFiles     goal = "files of a trip"
	tripReturns   goal = "returns of a trip"
)

// flow is a value that enters the code somewhere.
type flow struct {
	Name    string
	Program string // the program it runs in: only what that links is entered
	Start   string // package.Type.method:parameter
	Files   int    // at most; zero is no goal
	Returns int    // at most; zero is no goal
}

// flows are those that a newcomer follows first. A start that moves or gets another name
// is mended here, in the same commit.
var flows = []flow{
	{Name: "an Application change on the hub", Program: "cmd/principal", Start: "backends/mirror.loop.observeAgain:key", Files: 10, Returns: 25},
	{Name: "a status back", Program: "cmd/principal", Start: "backends/ownership.planStatus:e"},
	{Name: "a message in the loop", Program: "cmd/principal", Start: "backends/mirror.loop.receive:msg"},
	{Name: "a live GET on the hub", Program: "cmd/principal", Start: "proxies/resource.Hub.ServeHTTP:r"},
	{Name: "a live GET on the spoke", Program: "cmd/agent", Start: "proxies/resource/spoke.Spoke.ServeHTTP:r"},
}

// missed is a goal that the code misses in a place.
type missed struct {
	Goal    goal
	Subject string
	Number  int
	Limit   int
}

func (m missed) String() string {
	return fmt.Sprintf("%s: %s: %d, the goal is %d", m.Subject, m.Goal, m.Number, m.Limit)
}

// entry is the row of notYet that allows it.
func (m missed) entry() string {
	return fmt.Sprintf("{%s, %q, %d},", names[m.Goal], m.Subject, m.Number)
}

// names are the goals' names in this package.
var names = map[goal]string{
	packageLines: "packageLines", structFields: "structFields", typeMethods: "typeMethods", functionLines: "functionLines",
	functionDepth: "functionDepth", arrowsBack: "arrowsBack", tripFiles: "tripFiles", tripReturns: "tripReturns",
}

package way

type row struct{ visit func(v Value) }

var table = map[string]row{
	"first":  {visit: first},
	"fourth": {visit: func(v Value) { fourth(v.Name) }},
}

// Table is followed into every row.
func Table(v Value, kind string) { table[kind].visit(v) }

var list = []func(Value){third}

// Loop is followed into what a list has.
func Loop(v Value) {
	for _, visit := range list {
		visit(v)
	}
}

type config struct{ Visit func(Value) }

type machine struct{ visit func(Value) }

func newMachine(cfg config) *machine { return &machine{visit: cfg.Visit} }

var running = newMachine(config{Visit: third})

// Callback is followed into what a field was given of another.
func Callback(v Value) { running.visit(v) }

// Parameter is not followed: its callers have the function in view.
func Parameter(v Value, visit func(Value)) { visit(v) }

package config

import "github.com/knadh/koanf/v2"

// delimiter separates the segments of a key.
const delimiter = "."

// Program says whose settings are loaded.
type Program struct {
	// Name is the binary's name; it gives the prefix of the environment
	// variables: "principal" reads PRINCIPAL__STREAM__LISTEN.
	Name string
	// Summary is the first line of the help text. Empty means none.
	Summary string
	// Version is what --version prints after the name.
	Version string
	// Environ returns the environment as "name=value". Nil means os.Environ.
	Environ func() []string
}

// loader carries one Load: what may be set, and what was set so far.
type loader struct {
	schema  *schema
	prefix  string // of environment variables, "PRINCIPAL__"
	helpBy  string // the command that lists all keys
	values  *koanf.Koanf
	sources map[string]string // key to where it was set last, in words
	// problems are the faults found so far, in the order of discovery.
	problems []error
}

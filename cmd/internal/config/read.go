package config

import (
	"fmt"
	"reflect"

	"github.com/knadh/koanf/v2"
)

// File is a file of settings that is read by a tool, not by the program that runs with it.
type File struct {
	// Program is the name of the program that runs with it.
	Program string
	// Flag is the tool's flag that names it, without dashes.
	Flag string
	Path string
}

// Read returns defaults overlaid with one file, without environment and flags. The error
// joins one line for each key that is none of T's, and each value that is none of its key.
//
// Nothing is validated, since the program may get from its environment and flags what the
// file leaves out: the caller validates what it goes by (see [Validate]).
func Read[T any](file File, defaults T) (T, error) {
	cfg := defaults
	if err := read(file, reflect.ValueOf(&cfg).Elem()); err != nil {
		var none T
		return none, err
	}
	return cfg, nil
}

func read(file File, into reflect.Value) error {
	schema, err := newSchema(into)
	if err != nil {
		return fmt.Errorf("describe the settings of %s: %w", file.Program, err)
	}
	l := &loader{
		schema: schema, helpBy: file.Program + " --help",
		values: koanf.New(delimiter), sources: make(map[string]string),
	}
	if err := l.mergeFile(file.Flag, file.Path, "flag --"+file.Flag); err != nil {
		return err
	}
	return l.decodeAll()
}

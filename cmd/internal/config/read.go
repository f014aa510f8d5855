package config

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// File is a file of settings that is read by a tool, not by the program that runs with it.
type File struct {
	// Program is the name of the program that runs with it.
	Program string
	// Flag is the tool's flag that names it, without dashes.
	Flag string
	Path string
	// Content is what it holds, of a file that is nowhere: Path then is only its name in errors. Nil
	// means what is at Path.
	Content []byte
}

// Read returns defaults overlaid with one file, without environment and flags. The error
// joins one line for each key that is none of T's, and each value that is none of its key.
//
// Nothing is validated, since the program may get from its environment and flags what the
// file leaves out: the caller validates what it goes by (see [Validate]).
func Read[T any](from File, defaults T) (T, error) {
	cfg := defaults
	if err := read(from, reflect.ValueOf(&cfg).Elem()); err != nil {
		var none T
		return none, err
	}
	return cfg, nil
}

func (f File) provider() koanf.Provider {
	if f.Content != nil {
		return content(f.Content)
	}
	return file.Provider(f.Path)
}

// content is a file that is nowhere.
type content []byte

// ReadBytes implements koanf.Provider.
func (c content) ReadBytes() ([]byte, error) { return c, nil }

// Read implements koanf.Provider. It is not called, since each file has a parser.
func (content) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

func read(from File, into reflect.Value) error {
	schema, err := newSchema(into)
	if err != nil {
		return fmt.Errorf("describe the settings of %s: %w", from.Program, err)
	}
	l := &loader{
		schema: schema, helpBy: from.Program + " --help",
		values: koanf.New(delimiter), sources: make(map[string]string),
	}
	if err := l.mergeFile(from.Flag, from.Path, "flag --"+from.Flag, from.provider()); err != nil {
		return err
	}
	return l.decodeAll()
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/argomesh/argomesh/cmd/internal/process"
)

// Load returns defaults overlaid with the file, the environment and args, and
// checked by every Validate method in T (see [Validate]). args are the
// command line without the program's name. The error is a [*process.Answer] for
// --help and --version; otherwise it joins one line for each problem, each naming its
// key, where it was set, and the cure. T must be a struct whose exported fields
// all carry a `koanf` tag.
func Load[T any](program Program, args []string, defaults T) (T, error) {
	cfg := defaults
	if err := load(program, args, reflect.ValueOf(&cfg).Elem()); err != nil {
		var none T
		return none, err
	}
	if err := Validate(&cfg); err != nil {
		var none T
		return none, err
	}
	return cfg, nil
}

func load(program Program, args []string, into reflect.Value) error {
	schema, err := newSchema(into)
	if err != nil {
		return fmt.Errorf("describe the settings of %s: %w", program.Name, err)
	}
	l := &loader{
		schema:  schema,
		prefix:  envPrefix(program.Name),
		helpBy:  "--help",
		values:  koanf.New(delimiter),
		sources: make(map[string]string),
	}
	environ := program.Environ
	if environ == nil {
		environ = os.Environ
	}

	flags := l.flags(program.Name)
	if err := l.parse(flags, args); err != nil {
		return err
	}
	if asked(flags, "help") {
		return &process.Answer{Text: l.help(program)}
	}
	if asked(flags, "version") {
		return &process.Answer{Text: strings.TrimSpace(program.Name+" "+program.Version) + "\n"}
	}

	for _, layer := range []func() error{
		func() error { return l.loadFallbacks(environ) },
		func() error { return l.loadFile(flags, environ) },
		func() error { return l.loadEnviron(environ) },
		func() error { return l.loadFlags(flags) },
	} {
		if err := layer(); err != nil {
			return err
		}
	}
	return l.decodeAll()
}

// decodeAll sets what the layers gave, and returns all problems.
func (l *loader) decodeAll() error {
	for _, f := range l.schema.fields {
		if l.values.Exists(f.key) {
			l.problems = append(l.problems, l.decode(f)...)
		}
	}
	return errors.Join(l.problems...)
}

// loadFallbacks reads the variables other programs agreed on, such as
// SPIFFE_ENDPOINT_SOCKET. They come before the file, since they were not set
// for this program.
func (l *loader) loadFallbacks(environ func() []string) error {
	byName := make(map[string]field)
	for _, f := range l.schema.fields {
		if f.fallback != "" {
			byName[f.fallback] = f
		}
	}
	return l.merge(env.Provider(delimiter, env.Opt{
		EnvironFunc: environ,
		TransformFunc: func(name, value string) (string, any) {
			f, ok := byName[name]
			if !ok || value == "" {
				return "", nil
			}
			l.sources[f.key] = "environment variable " + name
			return f.key, value
		},
	}), nil)
}

// loadFile reads the YAML file, if one is named.
func (l *loader) loadFile(flags *pflag.FlagSet, environ func() []string) error {
	path := flags.Lookup(keyConfig).Value.String()
	source := "flag --" + keyConfig
	if path == "" {
		source = "environment variable " + envName(l.prefix, keyConfig)
		for _, entry := range environ() {
			if value, ok := strings.CutPrefix(entry, envName(l.prefix, keyConfig)+"="); ok {
				path = value
			}
		}
	}
	if path == "" {
		return nil
	}
	return l.mergeFile(keyConfig, path, source, file.Provider(path))
}

// mergeFile lays a YAML file over the earlier layers. name and source say who named it.
func (l *loader) mergeFile(name, path, source string, from koanf.Provider) error {
	err := l.merge(from, &fileParser{name: name, path: path, loader: l})
	var unreadable *os.PathError
	if errors.As(err, &unreadable) {
		return fmt.Errorf("%s: read %s: %w: name a readable YAML file (%s)", name, path, unreadable.Err, source)
	}
	return err
}

// loadEnviron reads the variables with the program's prefix.
func (l *loader) loadEnviron(environ func() []string) error {
	byName := make(map[string]field)
	for _, f := range l.schema.fields {
		byName[envName(l.prefix, f.key)] = f
	}
	return l.merge(env.Provider(delimiter, env.Opt{
		Prefix:      l.prefix,
		EnvironFunc: environ,
		TransformFunc: func(name, value string) (string, any) {
			if name == envName(l.prefix, keyConfig) {
				return "", nil
			}
			f, ok := byName[name]
			source := "environment variable " + name
			switch {
			case !ok:
				l.problems = append(l.problems, l.unknownVariable(name))
				return "", nil
			case f.form == formFileOnly:
				l.problems = append(l.problems, &KeyError{Key: f.key,
					Problem: fmt.Sprintf("cannot be given in one line: set it in the file named by --%s (%s)", keyConfig, source)})
				return "", nil
			}
			l.sources[f.key] = source
			return f.key, value
		},
	}), nil)
}

// loadFlags reads the flags that were given.
func (l *loader) loadFlags(flags *pflag.FlagSet) error {
	return l.merge(posflag.ProviderWithFlag(flags, delimiter, nil, func(given *pflag.Flag) (string, any) {
		f, ok := l.schema.byKey[given.Name]
		if !ok || !given.Changed {
			return "", nil
		}
		l.sources[f.key] = "flag --" + f.key
		return f.key, given.Value.String()
	}), nil)
}

// merge lays one layer over the earlier ones, setting by setting.
func (l *loader) merge(provider koanf.Provider, parser koanf.Parser) error {
	return l.values.Load(provider, parser, koanf.WithMergeFunc(func(layer, below map[string]any) error {
		l.schema.overlay(layer, below, "")
		return nil
	}))
}

// fileParser is koanf's YAML parser, with an eye on keys and lines.
type fileParser struct {
	name   string // of the setting that names the file
	path   string
	loader *loader
}

// Unmarshal returns the file's mapping without unknown keys, which it reports
// to the loader.
func (p *fileParser) Unmarshal(b []byte) (map[string]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return map[string]any{}, nil // an empty file sets nothing
		}
		return nil, p.broken(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s holds more than one YAML document: keep one", p.name, p.path)
	}
	values, err := koanfyaml.Parser().Unmarshal(b)
	if err != nil {
		return nil, p.broken(err)
	}
	p.check(resolve(document.Content[0]), "", values)
	return values, nil
}

// Marshal is part of koanf's Parser; nothing here writes files.
func (p *fileParser) Marshal(map[string]any) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// check walks one mapping of the file beside its decoded values, removes from
// values what is not a setting and notes where the settings stand.
func (p *fileParser) check(mapping *yaml.Node, section string, values map[string]any) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], resolve(mapping.Content[i+1])
		source := fmt.Sprintf("%s, line %d", p.path, name.Line)
		if name.Tag == "!!merge" {
			p.checkMerged(value, section, values)
			continue
		}
		key := join(section, name.Value)
		nested := !strings.Contains(name.Value, delimiter)
		if f, ok := p.loader.schema.byKey[key]; ok && nested {
			p.loader.sources[f.key] = source
			continue
		}
		if !p.loader.schema.sections[key] || !nested {
			p.loader.problems = append(p.loader.problems, p.loader.unknownInFile(key, name.Value, source))
			delete(values, name.Value)
			continue
		}
		inner, isMapping := values[name.Value].(map[string]any)
		switch {
		case isMapping:
			p.check(value, key, inner)
		case values[name.Value] == nil:
			delete(values, name.Value) // "stream:" with every key under it commented out
		default:
			p.loader.problems = append(p.loader.problems,
				&KeyError{Key: key, Problem: "holds further keys, it is not a value itself (" + source + ")"})
			delete(values, name.Value)
		}
	}
}

// checkMerged handles "<<: *anchor" and "<<: [*one, *two]".
func (p *fileParser) checkMerged(value *yaml.Node, section string, values map[string]any) {
	if value.Kind != yaml.SequenceNode {
		p.check(value, section, values)
		return
	}
	for _, one := range value.Content {
		p.check(resolve(one), section, values)
	}
}

func (p *fileParser) broken(err error) error {
	return fmt.Errorf("%s: %s is not YAML we can read: %s", p.name, p.path,
		oneLine(strings.TrimPrefix(err.Error(), "yaml: ")))
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

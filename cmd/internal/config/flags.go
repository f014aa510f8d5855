package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// flagValue keeps a flag's text; decoding is the same for all layers.
type flagValue struct {
	text     string
	appends  bool // given again, a list or map grows
	typeName string
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.typeName }

func (v *flagValue) Set(text string) error {
	if v.appends && v.text != "" {
		text = v.text + "," + text
	}
	v.text = text
	return nil
}

// flags declares one flag for each setting that fits in one line.
func (l *loader) flags(program string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	flags.Usage = func() {}
	flags.Var(&flagValue{typeName: "file"}, keyConfig, "YAML file with settings")
	flags.BoolP("help", "h", false, "print every setting and exit")
	flags.Bool("version", false, "print the version and exit")
	for _, f := range l.schema.fields {
		if f.form == formFileOnly {
			continue
		}
		flags.Var(&flagValue{
			appends:  f.form != formScalar,
			typeName: typeName(f.value.Type()),
		}, f.key, f.help)
		if f.value.Kind() == reflect.Bool || isChoice(f.value.Type()) {
			flags.Lookup(f.key).NoOptDefVal = "true"
		}
	}
	return flags
}

func (l *loader) parse(flags *pflag.FlagSet, args []string) error {
	err := flags.Parse(args)
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var candidates []string
		flags.VisitAll(func(f *pflag.Flag) { candidates = append(candidates, "--"+f.Name) })
		given := "--" + unknown.GetSpecifiedName()
		return fmt.Errorf("unknown flag %s%s", given, l.suggestion(given, candidates))
	case err != nil:
		return fmt.Errorf("%w: --help lists all flags", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: settings are given as --key=value, --help lists all", flags.Arg(0))
	default:
		return nil
	}
}

// asked reports whether a flag of the kind --help was given.
func asked(flags *pflag.FlagSet, name string) bool {
	given, err := flags.GetBool(name)
	return err == nil && given
}

// help returns the manual: every setting with its type, meaning, default and
// environment variable.
func (l *loader) help(program Program) string {
	var b strings.Builder
	if program.Summary != "" {
		fmt.Fprintf(&b, "%s\n\n", program.Summary)
	}
	fmt.Fprintf(&b, `Usage:
  %s [--config file] [--key=value ...]

Settings come from the defaults, the YAML file, the environment and the flags;
later ones win. In the file the parts of a key between dots are nested.

  -h, --help
        print every setting and exit
      --version
        print the version and exit
      --config file
        YAML file with settings
        (environment %s)
`, program.Name, envName(l.prefix, keyConfig))
	section := ""
	for _, f := range l.schema.fields {
		if top, _, nested := strings.Cut(f.key, delimiter); nested && top != section {
			section = top
			b.WriteByte('\n')
		}
		name := "--" + f.key
		if f.form == formFileOnly {
			name = f.key
		}
		fmt.Fprintf(&b, "      %s %s\n", name, typeName(f.value.Type()))
		if f.help != "" {
			fmt.Fprintf(&b, "        %s\n", f.help)
		}
		var notes []string
		if text := formatDefault(f.value); text != "" {
			notes = append(notes, "default "+text)
		}
		switch {
		case f.form == formFileOnly:
			notes = append(notes, "in the YAML file only")
		case f.fallback != "":
			notes = append(notes, fmt.Sprintf("environment %s, or else %s", envName(l.prefix, f.key), f.fallback))
		default:
			notes = append(notes, "environment "+envName(l.prefix, f.key))
		}
		fmt.Fprintf(&b, "        (%s)\n", strings.Join(notes, "; "))
	}
	return b.String()
}

// formatDefault writes a default as a flag or variable would give it. It is
// empty for values that mean "none".
func formatDefault(v reflect.Value) string {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return "" // no default, such as an identity still to be given
		}
		return string(text)
	}
	if isChoice(v.Type()) {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	switch formOf(v.Type()) {
	case formList:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = formatDefault(v.Index(i))
		}
		return strings.Join(parts, ",")
	case formMap:
		var parts []string
		for key, value := range v.Seq2() {
			parts = append(parts, formatDefault(key)+"="+formatDefault(value))
		}
		slices.Sort(parts)
		return strings.Join(parts, ",")
	case formFileOnly:
		return ""
	default:
		return fmt.Sprint(v.Interface())
	}
}

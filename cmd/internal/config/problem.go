package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// KeyError is one problem with one setting.
type KeyError struct {
	// Key is the setting, "stream.listen". In an error of a block's Validate
	// it is relative to the block; [Validate] completes it.
	Key string
	// Problem says what is wrong and what to do about it, in one line.
	Problem string
}

// Error returns "key: problem".
func (e *KeyError) Error() string { return e.Key + ": " + e.Problem }

// Invalid returns a [*KeyError] whose problem is formatted like fmt.Sprintf.
func Invalid(key, format string, args ...any) error {
	return &KeyError{Key: key, Problem: fmt.Sprintf(format, args...)}
}

// Validate calls the Validate method of every struct inside the one config
// points to, innermost first, then its own. The errors they return are joined;
// those of a nested struct get its key in front.
func Validate(config any) error {
	return validate(reflect.ValueOf(config).Elem())
}

func validate(config reflect.Value) error {
	var problems []error
	for i := range config.NumField() {
		declared, value := config.Type().Field(i), config.Field(i)
		if declared.IsExported() && value.Kind() == reflect.Struct && !isText(value.Type()) {
			problems = append(problems, under(declared.Tag.Get("koanf"), validate(value)))
		}
	}
	if own, ok := config.Addr().Interface().(interface{ Validate() error }); ok {
		problems = append(problems, own.Validate())
	}
	return errors.Join(problems...)
}

// under puts section in front of the keys in err.
func under(section string, err error) error {
	switch err := err.(type) { //nolint:errorlint // the tree of errors is walked here, one level each time
	case nil:
		return nil
	case *KeyError:
		return &KeyError{Key: join(section, err.Key), Problem: err.Problem}
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range err.Unwrap() {
			all = append(all, under(section, one))
		}
		return errors.Join(all...)
	default:
		return fmt.Errorf("%s: %w", section, err)
	}
}

// unknownInFile is the error for a key of the file that is no setting.
func (l *loader) unknownInFile(key, name, source string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		key = strconv.QuoteToASCII(key) // a message is one line
	}
	if strings.Contains(name, delimiter) {
		return &KeyError{Key: key,
			Problem: fmt.Sprintf("unknown key: nest it, one level for each part between dots (%s)", source)}
	}
	candidates := make([]string, 0, len(l.schema.fields)+len(l.schema.sections))
	for known := range l.schema.sections {
		candidates = append(candidates, known)
	}
	for _, f := range l.schema.fields {
		candidates = append(candidates, f.key)
	}
	return &KeyError{Key: key, Problem: fmt.Sprintf("unknown key%s (%s)", l.suggestion(key, candidates), source)}
}

// unknownVariable is the error for a variable with our prefix that is no setting.
func (l *loader) unknownVariable(name string) error {
	candidates := []string{envName(l.prefix, keyConfig)}
	for _, f := range l.schema.fields {
		if f.form != formFileOnly {
			candidates = append(candidates, envName(l.prefix, f.key))
		}
	}
	return fmt.Errorf("environment variable %s: sets no known key%s", oneLine(name), l.suggestion(name, candidates))
}

// suggestion names the candidate most like given, or where all are listed when
// none is.
func (l *loader) suggestion(given string, candidates []string) string {
	slices.Sort(candidates) // the first of equals
	best, bestDistance := "", len(given)/3+1
	for _, candidate := range candidates {
		if d := distance(given, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best == "" {
		return ", " + l.helpBy + " lists all"
	}
	return fmt.Sprintf(", did you mean %s?", best)
}

// distance is the number of single-byte insertions, deletions and replacements
// that turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Problems returns the problems that an error of [Load], [Read] or [Validate] joins.
func Problems(err error) []error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, Problems(one)...)
	}
	return all
}

// oneLine joins the lines of a message of others.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

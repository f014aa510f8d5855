package review

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity/inspect"
)

// ReadPlanned reads the configuration with which a program runs, or is to run. The error
// is about what the program would refuse wherever else it gets settings from, and about
// the keys in basis, by which the caller checks. All else that keeps the program from
// starting with the file alone is found, and told: its environment or flags may give it.
func ReadPlanned[T any](file config.File, defaults T, basis ...string) (cfg T, found []inspect.Finding, err error) {
	if cfg, err = config.Read(file, defaults); err != nil {
		return cfg, nil, problemsOf(err)
	}
	var wrong []error
	for _, problem := range config.Problems(config.Validate(&cfg)) {
		text := cli.OneLine(problem)
		if slices.ContainsFunc(basis, func(key string) bool {
			return strings.HasPrefix(text, key+":") ||
				strings.HasPrefix(text, key+".")
		}) {
			wrong = append(wrong, problem)
			continue
		}
		found = append(found, inspect.Finding{
			Level: inspect.Warning, About: file.Path,
			Says: "alone does not start the " + file.Program + ": " + text,
			Cure: fmt.Sprintf("mend it there, unless the environment or the flags of the %s set it", file.Program),
		})
	}
	if len(wrong) > 0 {
		return cfg, found, fmt.Errorf("--%s %s: %w", file.Flag, file.Path, problemsOf(errors.Join(wrong...)))
	}
	return cfg, found, nil
}

// problemsOf returns the problems of settings as one line.
func problemsOf(err error) error {
	var lines []string
	for _, problem := range config.Problems(err) {
		lines = append(lines, cli.OneLine(problem))
	}
	return errors.New(strings.Join(lines, "; "))
}

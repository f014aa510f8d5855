package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// OneOf is a flag value out of a closed set.
type OneOf struct {
	Value   string
	Allowed []string
}

var errNotAllowed = errors.New("unknown value")

// String implements pflag.Value.
func (o *OneOf) String() string { return o.Value }

// Type implements pflag.Value.
func (o *OneOf) Type() string { return "string" }

// Set implements pflag.Value.
func (o *OneOf) Set(s string) error {
	for _, a := range o.Allowed {
		if s == a {
			o.Value = s
			return nil
		}
	}
	return fmt.Errorf("%w, one of %s is expected", errNotAllowed, JoinOr(o.Allowed))
}

// complete offers the allowed values to the shell.
func (o *OneOf) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return o.Allowed, cobra.ShellCompDirectiveNoFileComp
}

// AddEnumFlag adds a flag with a closed set of values, which the shell completes.
func AddEnumFlag(cmd *cobra.Command, value *OneOf, name, short, usage string) {
	cmd.Flags().VarP(value, name, short, usage)
	Register(cmd, name, value.complete)
}

package roles

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/proxies/access"
)

type roleCommand struct {
	std       cli.Streams
	config    string
	account   string
	allGroups bool
}

// NewCommand returns `agentctl agent role`.
func NewCommand(std cli.Streams) *cobra.Command {
	c := &roleCommand{std: std}
	cmd := &cobra.Command{
		Use:   "role --config FILE",
		Short: "Print the roles that an agent's configuration needs on its spoke",
		Long: "Print the ClusterRoles and Roles, with their bindings, that the service account of\n" +
			"an agent needs on its spoke: what the agent itself does, and what access, policy and\n" +
			"mapping in its configuration let the hub do. Nothing is contacted. Apply it on the spoke again\n" +
			"whenever one of them has changed; roles of namespaces that are no longer named there\n" +
			"are to be deleted.",
		Example: "  agentctl agent role --config agent.yaml | kubectl --context spoke apply -f -",
		Args:    cli.None,
		RunE:    func(*cobra.Command, []string) error { return c.run() },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.config, "config", "",
		"the agent's YAML file; its namespace, mode, access, policy and mapping count")
	flags.StringVar(&c.account, "service-account", "argomesh-agent",
		"name of the agent's service account, in the agent's namespace; the roles are called the same")
	flags.BoolVar(&c.allGroups, "all-groups", false,
		`write rules with group "*" as they are, although RBAC then also grants what is switched off; the agent goes on refusing that`)
	cli.Register(cmd, "service-account", cobra.NoFileCompletions)
	return cmd
}

func (c *roleCommand) run() error {
	if c.config == "" {
		return errors.New("--config is missing: name the YAML file the agent runs with")
	}
	if problems := validation.IsDNS1123Subdomain(c.account); len(problems) > 0 {
		return fmt.Errorf("--service-account %q: %s", c.account, problems[0])
	}
	all, err := config.Read(config.File{Program: "agent", Flag: "config", Path: c.config}, agentconfig.Default())
	cfg := Settings{Namespace: all.Namespace, Mode: all.Mode, Access: all.Access, Policy: all.Policy,
		Mapping: all.Mapping}
	if err == nil {
		err = config.Validate(&cfg)
	}
	if err != nil {
		return err
	}
	grants, err := cfg.Access.Grants(c.allGroups)
	if errors.Is(err, access.ErrWildcard) {
		return fmt.Errorf("access: %w, or accept that with --all-groups", err)
	}
	if err != nil {
		return err
	}
	return printRoles(c.std.Out, Of(c.account, cfg, grants))
}

// printRoles prints objects as YAML, one document each.
func printRoles(w io.Writer, objects []runtime.Object) error {
	p := &printers.YAMLPrinter{}
	for _, object := range objects {
		if err := p.PrintObj(object, w); err != nil {
			return err
		}
	}
	return nil
}

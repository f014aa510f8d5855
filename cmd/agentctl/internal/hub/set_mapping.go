package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/install"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/review"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
)

// NewCommand returns `agentctl hub`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Install and remove the principal, and change what a hub has decided once",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(install.NewHubCommand(std, conn), install.NewHubUninstallCommand(std, conn),
		newSetMappingCommand(std, conn))
	return cmd
}

type setMappingCommand struct {
	std       cli.Streams
	conn      *cli.Connection
	config    string
	dryRun    bool
	yes       bool
	noHeaders bool
}

// mappingNames are what the command takes.
var mappingNames = []string{string(hubstate.ByNamespace), string(hubstate.ByDestination)}

func newSetMappingCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &setMappingCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "set-mapping namespace|destination",
		Short: "Change how the hub decides which agent owns an Application",
		Long: "Show which Applications of managed agents are elsewhere by the other mapping, and put it in\n" +
			"force: in ConfigMap argomesh-hub, which every principal of the hub follows within seconds.\n\n" +
			"It refuses while something would be lost: an Application that no agent would take, or that its\n" +
			"AppProject keeps on the hub, one that is being deleted, or an operation that is under way. Each\n" +
			"is named with what helps.\n\n" +
			"Which namespaces and labels count is in the configuration of the principal, so the command needs\n" +
			"it. The setting mapping.by changes nothing once a hub has decided.",
		Example: "  kubectl get configmap argomesh-principal -n argocd -o jsonpath='{.data.principal\\.yaml}' >principal.yaml\n" +
			"  agentctl hub set-mapping destination --principal-config principal.yaml --dry-run",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(mappingNames, args[0]) {
				return fmt.Errorf("one of %s is expected: %s", cli.JoinOr(mappingNames), cmd.UseLine())
			}
			return nil
		},
		ValidArgs: mappingNames,
		RunE:      func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), hubstate.Mapping(args[0])) },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.config, "principal-config", "", "the principal's YAML file")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only print what would move")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "print the table without its first line")
	return cmd
}

func (c *setMappingCommand) run(ctx context.Context, to hubstate.Mapping) error {
	doing := fmt.Sprintf("map by %s", to)
	cfg, err := c.read()
	if err != nil {
		return err
	}
	rest, err := c.conn.Config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		return cli.ExplainKubeconfig(err, c.conn.Rules)
	}
	store := review.HubStore(client, cfg)
	kept, err := store.Read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: there is no ConfigMap %s in namespace %s, so no principal has started on this hub: "+
			"set mapping.by of the principal before it does, or say which hub is meant by --context", doing, hubstate.ConfigMap,
			cfg.Namespace)
	case err != nil:
		return cli.ExplainAPI(err, doing, "hub", rest.Host)
	case kept.Mapping == "":
		return fmt.Errorf("%s: the principal of this hub is of a release that takes its mapping from mapping.by: upgrade it first", doing)
	case kept.Mapping == to:
		_, err := fmt.Fprintf(c.std.Err, "This hub maps by %s already.\n", to)
		return err
	}
	moves, stay, err := c.moves(ctx, client, cfg, kept.Mapping, to)
	if err != nil {
		return cli.ExplainAPI(err, doing, "hub", rest.Host)
	}
	out := c.std.Err
	if c.dryRun {
		out = c.std.Out
	}
	if err := c.show(out, moves, stay, to); err != nil {
		return err
	}
	if lost := slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.lost == "" }); len(lost) > 0 {
		return fmt.Errorf("%s: %s would be lost to its agent, for the reasons in the table", doing,
			cli.Applications(len(lost)))
	}
	if c.dryRun {
		return nil
	}
	if ok, err := c.agreed(len(moves), kept.Mapping, to); err != nil || !ok {
		return err
	}
	if err := store.SetMapping(ctx, kept.Mapping, to); err != nil {
		if errors.Is(err, hubstate.ErrMapping) {
			return fmt.Errorf("%s: %w; look again", doing, err)
		}
		return cli.ExplainAPI(err, doing, "hub", rest.Host)
	}
	_, err = fmt.Fprintf(c.std.Out, "This hub maps by %s now. Its principals follow within seconds.\n", to)
	return err
}

// agreed returns whether a person agrees that so many Applications move.
func (c *setMappingCommand) agreed(moves int, from, to hubstate.Mapping) (bool, error) {
	ok, err := cli.Consent(c.std, c.yes, fmt.Sprintf("Map by %s, and move %s?", to, cli.Applications(moves)))
	if err == nil && !ok {
		_, err = fmt.Fprintf(c.std.Err, "Cancelled, the hub goes on mapping by %s.\n", from)
	}
	return ok, err
}

// read reads the principal's configuration.
func (c *setMappingCommand) read() (principalconfig.Config, error) {
	if c.config == "" {
		return principalconfig.Config{},
			errors.New("--principal-config is missing: name the YAML file the principal runs with, which says which namespaces count")
	}
	cfg, _, err := review.ReadPlanned(config.File{Program: "principal", Flag: "principal-config", Path: c.config},
		principalconfig.Default(), "namespace", "mapping", "resource_proxy.url")
	return cfg, err
}

func (c *setMappingCommand) moves(ctx context.Context, client dynamic.Interface, cfg principalconfig.Config, from,
	to hubstate.Mapping) ([]move, int, error) {
	agents, err := cli.ListAgents(ctx, c.conn, cfg.Namespace)
	if err != nil {
		return nil, 0, err
	}
	projects, err := review.HubProjects(ctx, client, cfg.Namespace)
	if err != nil {
		return nil, 0, err
	}
	var apps []*unstructured.Unstructured
	if err := cli.EachOf(ctx, client.Resource(cli.ApplicationResource), func(o *unstructured.Unstructured) error {
		apps = append(apps, o)
		return nil
	}); err != nil {
		return nil, 0, fmt.Errorf("list the hub's Applications: %w", err)
	}
	moves, stay := movesOf(apps, mappedBy(from, cfg, agents), mappedBy(to, cfg, agents), projects)
	return moves, stay, nil
}

// show prints what moves, and what a person has to do for it on the spokes.
func (c *setMappingCommand) show(w io.Writer, moves []move, stay int, to hubstate.Mapping) error {
	tabs := cli.NewTable(w, false)
	if !c.noHeaders && len(moves) > 0 {
		tabs.Row([]string{"APPLICATION", "FROM", "TO", "WHAT HAPPENS"})
	}
	for _, m := range moves {
		tabs.Row([]string{m.name, m.from.String(), m.to.String(), m.does()})
	}
	if err := tabs.Flush(); err != nil {
		return err
	}
	notes := []string{fmt.Sprintf("By %s %s of managed agents would move, and %d would stay where they are.", to,
		cli.Applications(len(moves)), stay)}
	namespaces, leave := spokeNamespaces(moves), leavings(moves)
	for _, agent := range sortedNames(namespaces) {
		notes = append(notes,
			fmt.Sprintf("Agent %s has to admit them on its spoke: mapping.namespaces with %s, or what goes there is refused.",
				agent, strings.Join(namespaces[agent], ", ")))
	}
	for _, agent := range sortedNames(leave) {
		if leave[agent] > heldFrom {
			notes = append(notes,
				fmt.Sprintf("Of agent %s %s leave their place at once. If that is more than a fifth of it, the agent holds it until you accept it: agentctl agent accept-deletions %s.", agent, cli.Applications(leave[agent]), agent))
		}
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	return nil
}

// heldFrom is the number of absences that the guard never holds.
const heldFrom = 10

func sortedNames[T any](of map[identity.AgentName]T) []identity.AgentName {
	return slices.SortedFunc(maps.Keys(of),
		func(a, b identity.AgentName) int { return strings.Compare(a.String(), b.String()) })
}

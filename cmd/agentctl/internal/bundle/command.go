package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

type bundleCommand struct {
	std  cli.Streams
	conn *cli.Connection
	file string
	logs bool
}

// NewCommand returns `agentctl bundle`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &bundleCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Put what a bug report needs of a hub or a spoke into one archive",
		Long: "Put what a bug report needs of one side, hub or spoke, into one archive: Agents, what the\n" +
			"charts installed, pods and their logs, events, versions. It has at most 20 MiB.\n\n" +
			"Secrets are not in it, nor values of annotations, environment, arguments and Helm, nor what looks\n" +
			"like a token, a key or a password. Values of Secrets are taken out of the logs, for which\n" +
			"agentctl reads the Secrets of the namespace; without the right to do so logs stay out, unless\n" +
			"--logs asks for them. Look through it before you send it all the same.",
		Example: "  agentctl bundle --context hub\n  agentctl bundle --context edge-1 --file edge-1.tar.gz",
		Args:    cli.None,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&c.file, "file", "", "where to write it; it must not be there (default argomesh-DATE.tar.gz)")
	cmd.Flags().BoolVar(&c.logs, "logs", false, "logs, although the Secrets of the namespace cannot be read")
	return cmd
}

func (c *bundleCommand) run(ctx context.Context) error {
	config, client, err := c.conn.Client()
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	releases, err := release.New(release.Config{Getter: c.conn.Getter(c.conn.Namespace), Namespace: c.conn.Namespace})
	if err != nil {
		return err
	}
	from := &collector{client: client, dynamic: objects, namespace: c.conn.Namespace}
	version, err := from.version(buildinfo.Read())
	if err != nil {
		return cli.ExplainAPI(err, "make a bundle", "Kubernetes cluster", config.Host)
	}
	now := time.Now().UTC()
	name := cmp.Or(c.file, "argomesh-"+now.Format("20060102T150405Z")+".tar.gz")
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make a bundle: %w", err)
	}
	if err := errors.Join(c.fill(ctx, file, from, releases, version, now), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("make a bundle: %w", err), os.Remove(name))
	}
	for _, problem := range from.problems {
		if _, err := fmt.Fprintf(c.std.Err, "left out: %s\n", problem); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(c.std.Out, name)
	return err
}

// fill writes the archive. Only a writer that fails ends it.
func (c *bundleCommand) fill(ctx context.Context, w io.Writer, from *collector, releases *release.Client,
	version []byte,
	now time.Time,
) error {
	values, known := from.secrets(ctx)
	a := newArchive(w, NewRedactor(values), now)
	add := func(name string, content []byte, err error) error {
		if err != nil {
			from.problem(name, err)
		}
		if len(content) == 0 {
			return nil
		}
		if err = a.add(name, content); errors.Is(err, errFull) {
			from.problem(name, err)
			return nil
		}
		return err
	}
	if err := add("version.json", version, nil); err != nil {
		return err
	}
	for _, k := range kinds() {
		content, err := from.objects(ctx, k)
		if err := add("objects/"+k.resource.Resource+".yaml", content, err); err != nil {
			return err
		}
	}
	content, err := from.object(ctx, cli.ConfigMapResource, "argomesh-hub")
	if err := add("objects/argomesh-hub.yaml", content, err); err != nil {
		return err
	}
	content, err = from.argoCD(ctx)
	if err := add("argocd.txt", content, err); err != nil {
		return err
	}
	content, err = helm(releases)
	if err := add("helm.yaml", content, err); err != nil {
		return err
	}
	switch {
	case known || c.logs:
		if err := from.logs(ctx, func(name string, content []byte) error { return add(name, content, nil) }); err != nil {
			return err
		}
	default:
		from.problem("logs",
			errors.New("the Secrets of the namespace cannot be read, so that logs may repeat them: see --logs"))
	}
	if err := a.last("problems.txt", []byte(strings.Join(from.problems, "\n")+"\n")); err != nil {
		return err
	}
	return a.close()
}

// helm says of which charts the releases are, and which values people gave, without the values.
func helm(releases *release.Client) ([]byte, error) {
	all := map[string]any{}
	for _, name := range []string{charts.Principal, charts.Agent} {
		s, err := releases.Observe(name)
		if err != nil {
			return nil, err
		}
		if s.Revision == 0 {
			continue
		}
		all[name] = map[string]any{
			"revision": s.Revision, "status": s.Status.String(), "chart": s.Chart, "version": s.Version, "since": s.Since,
			"values": keysOf(s.Values),
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return yaml.Marshal(all)
}

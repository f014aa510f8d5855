package install

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli/values"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/images"
)

// identityFlags say how SPIRE is to know the pods of one side.
type identityFlags struct {
	className string
	register  bool
}

func (f *identityFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.className, "class-name", "",
		"class of the spire-controller-manager (default that of the ClusterSPIFFEIDs that are there)")
	cmd.Flags().BoolVar(&f.register, "register", true, "register the pods with SPIRE, by a ClusterSPIFFEID")
	cli.Register(cmd, "class-name", cobra.NoFileCompletions)
}

// options are what both sides have.
type options struct {
	values   values.Options
	registry string
	timeout  time.Duration
	noWait   bool
	force    bool
	dryRun   *cli.OneOf
	// argoCD says that what follows from the Argo CD of this side is filled in, and that on the
	// hub its argocd-server is told of the Redis proxy.
	argoCD bool
	// askImages says that registries are asked for the images before anything is written.
	askImages bool
	// preCheck says that a problem which is found before anything is written ends the install.
	preCheck bool
	identity identityFlags
	with     with
	// shareDefault says that hub and managed spokes have AppProject default in common from the first install on, and
	// hubKeepsDefault that the hub has decided otherwise.
	shareDefault, hubKeepsDefault bool
	// project is an AppProject that the hub is to have for a spoke; empty for none.
	project string
	// outputDir is a folder for files in place of objects; empty for objects. The repository in
	// which it is at a path is for an ApplicationSet; empty for none.
	outputDir, repository, repositoryPath string
}

// addFlags adds those of an install.
func (o *options) addFlags(cmd *cobra.Command) {
	o.addShared(cmd)
	o.with.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.noWait, "no-wait", false, "do not wait for our pods; what --with brings is waited for")
	flags.BoolVar(&o.shareDefault, "share-default", true,
		"on a first install share AppProject default, which Applications are of that name none: the hub sends it, and a"+
			" managed spoke takes it, unless its owner has changed it")
	flags.StringVar(&o.outputDir, "output-dir", "",
		"write what would be installed as files for GitOps into this folder, and nothing to the cluster")
	cli.AddEnumFlag(cmd, o.dryRun, "dry-run", "", "server: say what would be done, and write nothing")
	flags.Lookup("dry-run").NoOptDefVal = cli.DryRunServer
}

// addShared adds those that an upgrade of many has, too.
func (o *options) addShared(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.values.ValueFiles, "values", "f", nil,
		"YAML file with values of the chart; may be repeated, a later one wins")
	flags.StringArrayVar(&o.values.Values, "set", nil,
		"a value of the chart, KEY=VALUE, as helm has it; wins over --values")
	flags.StringArrayVar(&o.values.StringValues, "set-string", nil, "as --set, and the value is text")
	flags.StringArrayVar(&o.values.FileValues, "set-file", nil, "as --set, and the value is the content of a file")
	flags.StringVar(&o.registry, "registry", "",
		"registry and folder of our images, such as registry.example/argomesh; it is kept, as values are")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the pods; 0 means without limit")
	flags.BoolVar(&o.force, "force-conflicts", false, "take over fields that someone else has changed since")
	flags.BoolVar(&o.argoCD, "argocd-settings", true,
		"fill in what follows from the Argo CD that is there, and on the hub have argocd-server use the Redis proxy")
	flags.BoolVar(&o.askImages, "check-images", true, "ask the registries for the images before anything is written")
	flags.BoolVar(&o.preCheck, "pre-check", true,
		"end before anything is written where \"agentctl check --pre\" finds a problem")
	o.identity.addFlags(cmd)
	o.dryRun = &cli.OneOf{Value: cli.DryRunNone, Allowed: []string{cli.DryRunNone, cli.DryRunServer}}
	for _, name := range []string{"set", "set-string", "set-file", "registry", "timeout"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// checkOutput refuses what has no meaning beside files.
func (o *options) checkOutput() error {
	switch {
	case o.outputDir == "" && o.repository != "":
		return errors.New("--repo-url: an ApplicationSet is a file, so --output-dir is missing")
	case o.outputDir != "" && o.dryRun.Value != cli.DryRunNone:
		return errors.New("--output-dir writes nothing to the cluster: leave --dry-run out, and compare the files")
	}
	return o.with.check()
}

// merged returns base with what the flags say laid over it.
func (o *options) merged(base map[string]any) (map[string]any, error) {
	given, err := o.values.MergeValues(nil)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return loader.MergeMaps(base, given), nil
}

// image returns the value that names an image of ours in the registry.
func (o *options) image(program string) map[string]any {
	return map[string]any{"repository": images.Ours(o.registry, program)}
}

// has reports whether values say something at a path.
func has(values map[string]any, path ...string) bool {
	for _, key := range path[:len(path)-1] {
		values, _ = values[key].(map[string]any)
	}
	return values[path[len(path)-1]] != nil
}

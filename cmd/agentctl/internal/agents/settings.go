package agents

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/accesswords"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
)

// settings are those of an Agent that flags of create and set name. What no flag names they
// leave as it is.
type settings struct {
	flags       *pflag.FlagSet
	spiffeIDs   []string
	trustDomain string
	labels      []string
	access      []string
	mapping     []string
	adopt       []string
	children    *cli.OneOf
	roles       *cli.OneOf
	policy      *cli.OneOf
	cascadeHold int32
	suspended   bool
}

// settingFlags are the names of their flags, in the order in which a cure has them.
var settingFlags = []string{
	"spiffe-id", "trust-domain", "label", "access", "mapping", "child-applications", "project-roles", "adopt",
	"deletion-policy", "cascade-hold", "suspended",
}

func (s *settings) addFlags(cmd *cobra.Command) {
	s.flags = cmd.Flags()
	s.children = &cli.OneOf{Allowed: []string{string(v1alpha1.ChildApplicationsIgnore),
		string(v1alpha1.ChildApplicationsMirror)}}
	s.roles = &cli.OneOf{Allowed: []string{string(v1alpha1.ProjectRolesIgnore), string(v1alpha1.ProjectRolesMirror)}}
	s.policy = &cli.OneOf{Allowed: []string{string(v1alpha1.DeletionOrphan), string(v1alpha1.DeletionCascade)}}
	flags := cmd.Flags()
	flags.StringArrayVar(&s.spiffeIDs, "spiffe-id", nil, "SPIFFE ID the agent may present; may be repeated")
	flags.StringVar(&s.trustDomain, "trust-domain", "",
		"trust domain of the agent, whose SPIFFE ID is then spiffe://<trust domain>/argomesh/agent/<NAME>")
	flags.StringArrayVar(&s.labels, "label", nil,
		"label key=value of the cluster Secret, for ApplicationSets, or key- for none; may be repeated")
	flags.StringSliceVar(&s.access, "access", nil,
		"live access by the hub: off, or read and what else it may, such as read,writes,exec; rules and impersonation stay")
	flags.StringArrayVar(&s.mapping, "mapping", nil,
		"namespace of the spoke and its namespace on the hub, spoke=hub, nothing before = for that of the spoke's Argo CD; may be repeated, and replaces all")
	flags.StringArrayVar(&s.adopt, "adopt", nil,
		"objects of the hub that mirrors may take over, such as application/web-*; may be repeated, and replaces all")
	cli.AddEnumFlag(cmd, s.children, "child-applications", "",
		"what the hub does about Applications of the spoke that it did not put there")
	cli.AddEnumFlag(cmd, s.roles, "project-roles", "",
		"what the hub does about the roles of an autonomous agent's AppProjects")
	cli.AddEnumFlag(cmd, s.policy, "deletion-policy", "", "what deleting the Agent does to its spoke")
	flags.Int32Var(&s.cascadeHold, "cascade-hold", v1alpha1.DefaultCascadeHold,
		"how many Applications may be asked to go with their workloads before they wait for a person; 0 for any number")
	flags.BoolVar(&s.suspended, "suspended", false, "refuse the agent's connections")
	for _, name := range []string{"spiffe-id", "trust-domain", "label", "mapping", "adopt", "cascade-hold"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	cli.Register(cmd, "access", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return append([]string{accesswords.Off}, accesswords.Names()...), cobra.ShellCompDirectiveNoFileComp
	})
}

// given returns the flags that a person gave, as they are written.
func (s *settings) given() []string {
	var out []string
	for _, name := range settingFlags {
		f := s.flags.Lookup(name)
		switch {
		case !f.Changed:
		case f.Value.Type() == "bool":
			out = append(out, fmt.Sprintf("--%s=%s", name, f.Value))
		default:
			values := []string{f.Value.String()}
			if list, ok := f.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			if name == "access" {
				values = []string{strings.Join(values, ",")}
			}
			for _, value := range values {
				out = append(out, "--"+name+" "+cli.ShellWord(value))
			}
		}
	}
	return out
}

// apply gives spec, of the agent of that name, what the flags name. The error names the flag
// that is wrong.
func (s *settings) apply(name identity.AgentName, spec *v1alpha1.AgentSpec) error {
	is := s.flags.Changed
	if is("spiffe-id") || is("trust-domain") {
		ids, err := cli.SpiffeIDsOf(name, s.spiffeIDs, s.trustDomain)
		if err != nil {
			return err
		}
		spec.Identity.SPIFFEIDs = ids
	}
	var err error
	if is("label") {
		if spec.Labels, err = changeLabels(spec.Labels, s.labels); err != nil {
			return err
		}
	}
	if is("access") {
		if spec.Access, err = accesswords.Change(spec.Access, s.access); err != nil {
			return err
		}
	}
	if is("mapping") {
		if spec.Mapping, err = parseMapping(s.mapping); err != nil {
			return err
		}
	}
	if is("adopt") {
		spec.Adopt = nil
		for _, pattern := range s.adopt {
			spec.Adopt = append(spec.Adopt, v1alpha1.AdoptPattern(pattern))
		}
	}
	if is("child-applications") {
		spec.ChildApplications = v1alpha1.ChildApplications(s.children.Value)
	}
	if is("project-roles") {
		spec.ProjectRoles = v1alpha1.ProjectRoles(s.roles.Value)
	}
	if is("deletion-policy") {
		spec.DeletionPolicy = v1alpha1.DeletionPolicy(s.policy.Value)
	}
	if is("cascade-hold") {
		if s.cascadeHold < 0 {
			return fmt.Errorf("--cascade-hold %d: 0 or more is expected", s.cascadeHold)
		}
		spec.CascadeHold = new(s.cascadeHold)
	}
	if is("suspended") {
		spec.Suspended = s.suspended
	}
	return nil
}

// changeLabels returns labels with those of pairs, and without the keys that end with a "-".
func changeLabels(labels map[string]v1alpha1.LabelValue, pairs []string) (map[string]v1alpha1.LabelValue, error) {
	out := map[string]v1alpha1.LabelValue{}
	for key, value := range labels {
		out[key] = value
	}
	for _, pair := range pairs {
		if key, removed := strings.CutSuffix(pair, "-"); removed && !strings.Contains(pair, "=") {
			delete(out, key)
			continue
		}
		added, err := cli.ParseLabels("--label", []string{pair})
		if err != nil {
			return nil, err
		}
		for key, value := range added {
			out[key] = value
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// parseMapping reads the values of --mapping; none, or an empty one alone, is the namespace of
// the agent's name.
func parseMapping(pairs []string) (*v1alpha1.AgentMapping, error) {
	var out []v1alpha1.MappedNamespace
	for _, pair := range pairs {
		if pair == "" && len(pairs) == 1 {
			return nil, nil
		}
		spoke, hub, found := strings.Cut(pair, "=")
		if !found || hub == "" {
			return nil, fmt.Errorf("--mapping %q: spoke=hub is expected", pair)
		}
		out = append(out, v1alpha1.MappedNamespace{Spoke: spoke, Hub: hub})
	}
	return &v1alpha1.AgentMapping{Namespaces: out}, nil
}

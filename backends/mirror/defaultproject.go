package mirror

import "github.com/argomesh/argomesh/stream"

// DefaultProject says whether a managed agent gets the hub's AppProject default, which
// by its destinations is for every agent: each argocd-server makes one that permits all.
type DefaultProject uint8

const (
	// NotShared means that spokes keep the one of their own.
	NotShared DefaultProject = iota
	// Shared means that it travels as every other project.
	Shared
	// NoLongerShared means that spokes have copies from a time when it was shared. They
	// give them up; one that cannot goes on getting it, since it would delete its copy.
	NoLongerShared
)

// shares reports whether a project of that name may be for the agent.
func (r Rules) shares(project string) bool {
	return project != defaultProject || r.DefaultProject == Shared || r.DefaultProject == NoLongerShared && !r.GivesUp
}

// givesUp reports whether the spoke is to give an entry up that the hub does not send.
func (r Rules) givesUp(entry stream.EntryKey) bool {
	return r.GivesUp && r.sources(stream.AppProjects) && r.Side == stream.Hub &&
		entry.Collection == stream.AppProjects && !r.shares(entry.Name)
}

// giveUp takes our marks off a copy and leaves it to the owner of its side; what was
// adopted is given back.
func (r Rules) giveUp(current *object) ([]Write, *stream.Refusal) {
	if current == nil || !r.isCopy(*current) {
		return nil, nil
	}
	if rec, _ := recordOf(*current); rec.Adopted != "" {
		return r.letGo(current)
	}
	next := current.clone()
	next.unmark()
	return update(*current, next), nil
}

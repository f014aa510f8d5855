package needs

// Uses says which AppProjects the Applications that a managed agent gets name.
type Uses struct {
	byApp     map[string]use
	ByProject map[string]*Users
}

type use struct {
	users *Users
	going bool
}

// Users are the Applications that name one project, and those of them that are being
// deleted with their workloads.
type Users struct {
	project    string
	All, Going int
}

// NewUses returns a table of no Application.
func NewUses() Uses { return Uses{byApp: map[string]use{}, ByProject: map[string]*Users{}} }

// Of are the users of a project; zero when there are none.
func (u Uses) Of(project string) Users {
	if found := u.ByProject[project]; found != nil {
		return *found
	}
	return Users{}
}

// Set takes which project an Application names now, empty for one that the agent does
// not get. It returns the projects for which that makes a difference.
func (u Uses) Set(app, project string, going bool) (news []string) {
	before, known := u.byApp[app]
	if known && before.users.project == project && before.going == going || !known && project == "" {
		return nil
	}
	if known {
		news = u.count(before.users, -1, before.going, news)
		delete(u.byApp, app)
	}
	if project != "" {
		found := u.ByProject[project]
		if found == nil {
			found = &Users{project: project}
			u.ByProject[project] = found
		}
		news = u.count(found, 1, going, news)
		u.byApp[app] = use{found, going}
	}
	return news
}

// count adds an Application to the users of a project, or takes it away, and adds the
// project to news if it is the first, or the last.
func (u Uses) count(of *Users, n int, going bool, news []string) []string {
	was := *of
	of.All += n
	if going {
		of.Going += n
	}
	if of.All == 0 {
		delete(u.ByProject, of.project)
	}
	if (was.All == 0) != (of.All == 0) || (was.Going == 0) != (of.Going == 0) {
		news = append(news, of.project)
	}
	return news
}

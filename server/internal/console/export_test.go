package console

// ActionNames and ScreenPaths are the entries of the tables, so that tests miss none.
func ActionNames() []string {
	var names []string
	for _, a := range actions {
		names = append(names, a.name)
	}
	return names
}

func ScreenPaths() []string {
	var paths []string
	for _, s := range screens {
		paths = append(paths, s.path)
	}
	return paths
}

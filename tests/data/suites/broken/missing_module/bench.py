import a_module_that_is_not_there  # problem: no module 'a_module_that_is_not_there'
